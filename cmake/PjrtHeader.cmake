# The target pjrt_header: the headers of XLA's FFI, which the package ships, and the folder of pjrt_c_api.h, from
# PJRT_INCLUDE_DIR (option, then environment), else from the xla-cpu-pjrt wheel of the Python environment.
set(folder "${PJRT_INCLUDE_DIR}")
if(NOT folder)
  set(folder "$ENV{PJRT_INCLUDE_DIR}")
endif()
if(NOT folder)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import importlib.util as u; print(u.find_spec('xla_plugins.xla_cpu_pjrt').submodule_search_locations[0] + '/include', end='')"
    OUTPUT_VARIABLE folder ERROR_QUIET)
endif()
if(NOT EXISTS "${folder}/pjrt_c_api.h")
  message(FATAL_ERROR "pjrt_c_api.h was not found (looked in '${folder}'). Install the wheel xla-cpu-pjrt into the environment of "
                      "${Python_EXECUTABLE}, or name the header's folder: -DPJRT_INCLUDE_DIR=... or the environment variable.")
endif()
add_library(pjrt_header INTERFACE)
target_include_directories(pjrt_header SYSTEM INTERFACE ${folder} ${CMAKE_CURRENT_SOURCE_DIR}/python/torch_pjrt/include)
