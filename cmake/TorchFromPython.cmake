# The targets torch_cpp (for the rooms) and torch_python (for the bindings), from the torch wheel of Python_EXECUTABLE.
#
# find_package(Torch) is not used: on a wheel built for CUDA it asks for the whole CUDA toolkit, of which nothing is needed
# here. Bindings use the pybind11 that torch carries, as they must agree with torch_python about it.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0], end='')"
  OUTPUT_VARIABLE TORCH_DIR ERROR_QUIET)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml requires_line REGEX "^requires = ")
string(REGEX MATCH "torch>=([0-9.]+),<([0-9.]+)" TORCH_ACCEPTED "${requires_line}")
set(TORCH_LEAST ${CMAKE_MATCH_1})
set(TORCH_BEYOND ${CMAKE_MATCH_2})
if(NOT EXISTS "${TORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "${Python_EXECUTABLE} has no torch; install it there first (${TORCH_ACCEPTED})")
endif()
file(STRINGS "${TORCH_DIR}/version.py" version_line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TORCH_VERSION "${version_line}")
if(TORCH_VERSION VERSION_LESS "${TORCH_LEAST}" OR TORCH_VERSION VERSION_GREATER_EQUAL "${TORCH_BEYOND}")
  message(FATAL_ERROR "torch ${TORCH_VERSION} in ${TORCH_DIR}; torch-pjrt builds against ${TORCH_ACCEPTED}")
endif()
message(STATUS "torch ${TORCH_VERSION} in ${TORCH_DIR}")

add_library(torch_cpp INTERFACE)
target_include_directories(torch_cpp SYSTEM INTERFACE ${TORCH_DIR}/include ${TORCH_DIR}/include/torch/csrc/api/include)
# Else some headers of ATen include those of all its ops.
target_compile_definitions(torch_cpp INTERFACE AT_PER_OPERATOR_HEADERS)
if(TORCH_PJRT_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What GCC inlines in a unit differs, and then it takes the address of SmallVector's elements for a read of them.
  target_compile_options(torch_cpp INTERFACE -Wno-maybe-uninitialized)
endif()
target_link_libraries(torch_cpp INTERFACE ${TORCH_DIR}/lib/libc10.so ${TORCH_DIR}/lib/libtorch_cpu.so)
# libtorch_cpu.so of a CUDA wheel needs libraries that only the loader finds.
target_link_options(torch_cpp INTERFACE -Wl,--allow-shlib-undefined)

add_library(torch_python INTERFACE)
target_include_directories(torch_python SYSTEM INTERFACE ${Python_INCLUDE_DIRS})
target_link_libraries(torch_python INTERFACE torch_cpp ${TORCH_DIR}/lib/libtorch_python.so)

# precompiled(NAME HEADERS...): headers that nearly every file of some rooms includes, compiled once.
function(precompiled name)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PUBLIC torch_cpp pjrt_header)
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
precompiled(torch_precompiled
  <ATen/core/Tensor.h> <ATen/core/dispatch/Dispatcher.h> <ATen/core/ivalue.h> <ATen/core/stack.h> <torch/library.h>
  <functional> <map> <memory> <optional> <string> <unordered_map> <vector>)
# What a rule sees of torch. With all of ATen before it a file takes seconds more.
precompiled(c10_precompiled
  <c10/core/Scalar.h> <c10/util/SmallVector.h> <functional> <map> <optional> <string> <vector>)
target_compile_options(c10_precompiled PRIVATE -O1)  # as its rooms
