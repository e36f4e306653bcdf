"""spack dev-build installs dhp from this tree; docs/packages.md has the commands."""
import re
from pathlib import Path

from spack.package import *

try:  # Spack 1.0 and later
    from spack_repo.builtin.build_systems.cmake import CMakePackage
    from spack_repo.builtin.build_systems.cuda import CudaPackage
except ImportError:
    pass


class Dhp(CMakePackage, CudaPackage):
    """Parallel neural-network training in C++20: data, tensor and pipeline parallelism."""

    tree = Path(__file__).resolve().parents[5]
    git = f"file://{tree}"
    license("Apache-2.0")
    numbers = re.findall(r"int version_\w+ = (\d+)", (tree / "include/dhp/core/config.hpp").read_text())
    version(".".join(numbers), branch="main")

    variant("programs", default=True, description="Build the trainers and tools, too")
    variant("processes", default=True, description="Ranks that are processes")
    variant("mpi", default=False, when="+processes", description="Ranks meet and talk by MPI")
    variant("eigen", default=False, description="Eigen's matrices as tensors")

    depends_on("cxx", type="build")
    depends_on("cmake@3.23:", type="build")
    depends_on("ninja", type="build")
    depends_on("openssl@3:", when="+processes")
    depends_on("mpi", when="+mpi")
    depends_on("eigen", when="+eigen")
    for package in "cli11", "nlohmann-json", "zlib-api", "libpng", "libjpeg-turbo", "utf8proc":
        depends_on(package, when="+programs")
    depends_on("cudnn@9.10.2:", when="+cuda")
    for arch in CudaPackage.cuda_arch_values:
        depends_on(f"nccl cuda_arch={arch}", when=f"+cuda cuda_arch={arch}")
    conflicts("%gcc@:11", msg="dhp is C++20: g++ 12 or later")
    generator("ninja")

    @property
    def build_targets(self):
        return ["programs"] if "+programs" in self.spec else []

    def cmake_args(self):
        return [
            *([CMakePackage.define_cuda_architectures(self)] if "+cuda" in self.spec else []),
            self.define("DHP_TESTS", False),
            self.define_from_variant("DHP_EXAMPLES", "programs"),
            self.define("DHP_DEVICE", "cuda" if "+cuda" in self.spec else "cpu"),
            self.define("DHP_CPU_ARCH", ""),  # Spack's compilers add the target's own
        ]

    @run_after("install", when="+programs")
    def install_programs(self):
        cmake("--install", self.build_directory, "--component", "programs")
