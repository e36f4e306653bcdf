"""Builds and runs tests/consumer against the package."""
from pathlib import Path

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, cmake_layout


class Consumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps", "CMakeToolchain"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self)

    def build(self):
        cmake = CMake(self)
        cmake.configure(build_script_folder=Path(self.recipe_folder).parents[3] / "tests/consumer")
        cmake.build()

    def test(self):
        if can_run(self):
            for program in "plain", "cpu":
                self.run(f"{self.build_folder}/{program}", env="conanrun")
