"""conan create cmake/packages/conan: packages this tree's headers for Conan, with dhp's own CMake files."""
import re
from pathlib import Path

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, cmake_layout
from conan.tools.files import copy, load


class Dhp(ConanFile):
    name = "dhp"
    description = "Parallel neural-network training in C++20: data, tensor and pipeline parallelism"
    topics = ("deep-learning", "hpc", "header-only")
    license = "Apache-2.0"
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeToolchain"
    no_copy_source = True

    @property
    def _tree(self):
        return Path(self.recipe_folder).parents[2]

    def set_version(self):
        text = load(self, self._tree / "include/dhp/core/config.hpp")
        self.version = ".".join(re.findall(r"int version_\w+ = (\d+)", text))

    def export_sources(self):
        for pattern in "CMakeLists.txt", "CHANGELOG.md", "LICENSE", "include/*", "cmake/*":
            copy(self, pattern, self._tree, self.export_sources_folder, excludes="cmake/packages/*")

    def layout(self):
        cmake_layout(self)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def build(self):
        CMake(self).configure(variables={"DHP_TESTS": False, "DHP_EXAMPLES": False})

    def package(self):
        CMake(self).install()

    def package_info(self):  # find_package(dhp) finds OpenSSL, MPI and others on the user's machine
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["share/cmake/dhp"]
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
