"""Where the C++ headers and the library of ``torch_pjrt::Program`` are, as in ``torch.utils.cpp_extension``."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]


def include_path() -> str:
    """Returns the folder of ``torch_pjrt/program.h``, for a compiler's ``-I``."""
    folder = HERE / "include"
    return str(folder if (folder / "torch_pjrt").exists() else CHECKOUT / "include")


def library_path() -> str:
    """Returns the folder of ``libtorch_pjrt.so``, for a linker's ``-L`` and for ``LD_LIBRARY_PATH``.

    CMake's ``find_package(torch_pjrt)`` takes ``cmake/torch_pjrt`` in it as ``torch_pjrt_DIR``, and defines
    ``torch_pjrt::program``.

    Raises:
        FileNotFoundError: in a checkout, where the library hasn't been built.
    """
    folder = HERE / "lib"
    if not (folder / "libtorch_pjrt.so").exists():
        raise FileNotFoundError(
            f"there is no {folder / 'libtorch_pjrt.so'}; a wheel has it, and in a checkout "
            "`./dev build torch_pjrt_program` builds it"
        )
    return str(folder)
