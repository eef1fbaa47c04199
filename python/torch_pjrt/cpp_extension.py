"""Paths of the C++ headers and the library of ``torch_pjrt::Program``, as in ``torch.utils.cpp_extension``."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]


def include_path() -> str:
    """Returns the folder of ``torch_pjrt/program.h``, for a compiler's ``-I``.

    Example: ``g++ -I$(python -c "import torch_pjrt; print(torch_pjrt.include_path())") ...``.
    """
    folder = HERE / "include"
    return str(folder if (folder / "torch_pjrt").exists() else CHECKOUT / "include")


def library_path() -> str:
    """Returns the folder of ``libtorch_pjrt.so``, for a linker's ``-L`` and for ``LD_LIBRARY_PATH``.

    CMake finds the package in ``cmake/torch_pjrt`` of this folder, which ``torch_pjrt_DIR`` names;
    ``find_package(torch_pjrt)`` then defines the target ``torch_pjrt::program``. Example:
    ``g++ ... -L$(python -c "import torch_pjrt; print(torch_pjrt.library_path())") -ltorch_pjrt``.

    Raises:
        FileNotFoundError: this is a checkout in which the library hasn't been built.
    """
    folder = HERE / "lib"
    if not (folder / "libtorch_pjrt.so").exists():
        raise FileNotFoundError(
            f"there is no {folder / 'libtorch_pjrt.so'}; a wheel has it, and in a checkout "
            "`./dev build torch_pjrt_program` builds it"
        )
    return str(folder)
