# torch_pjrt::Program as a library for C++, shared and static, and pjrt-run: what include/torch_pjrt declares, with nothing of
# torch or Python in it. Installed they are found by find_package(torch_pjrt), as torch_pjrt::program and
# torch_pjrt::program_static.
find_package(Threads REQUIRED)
set(program_rooms room_runner room_file room_disk room_hlo room_pjrt)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/python/torch_pjrt/__init__.py line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" program_version "${line}")

function(program_library target type)
  add_library(${target} ${type} EXCLUDE_FROM_ALL)
  foreach(room ${program_rooms})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${room}>)
  endforeach()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME torch_pjrt VERSION ${program_version} SOVERSION 0
                        EXPORT_NAME ${ARGN} LINKER_LANGUAGE CXX)
endfunction()
program_library(torch_pjrt_program SHARED program)
program_library(torch_pjrt_program_static STATIC program_static)
target_link_options(torch_pjrt_program PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic)

add_executable(pjrt-run EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/src/command/pjrt_run.cpp)
target_link_libraries(pjrt-run PRIVATE torch_pjrt_program_static)

set(source ${CMAKE_CURRENT_SOURCE_DIR}/bench/deploy/call.cpp)
if(EXISTS ${source})  # a source distribution has no measurements
  add_executable(deploy_bench EXCLUDE_FROM_ALL ${source})
  target_link_libraries(deploy_bench PRIVATE ${program_rooms} Threads::Threads ${CMAKE_DL_LIBS})
endif()

# Handlers that files name and the runner loads; nothing links it.
if(TORCH_PJRT_ONEDNN)
  find_package(dnnl 3 REQUIRED CONFIG)
  find_package(OpenMP REQUIRED)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/onednn/*.cpp)
  add_library(torch_pjrt_onednn SHARED ${sources})
  target_include_directories(torch_pjrt_onednn PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_include_directories(torch_pjrt_onednn SYSTEM PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/python/torch_pjrt/include)
  target_link_libraries(torch_pjrt_onednn PRIVATE DNNL::dnnl OpenMP::OpenMP_CXX)
  # oneDNN is looked for beside it, and where it was found.
  set_target_properties(torch_pjrt_onednn PROPERTIES INSTALL_RPATH "$ORIGIN;$<TARGET_FILE_DIR:DNNL::dnnl>")
endif()

if(TORCH_PJRT_PROGRAM)
  foreach(target torch_pjrt_program torch_pjrt_program_static pjrt-run)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL OFF)
  endforeach()
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/torch_pjrt)
  install(TARGETS torch_pjrt_program torch_pjrt_program_static pjrt-run EXPORT torch_pjrt)
  if(TORCH_PJRT_ONEDNN)
    install(TARGETS torch_pjrt_onednn)
  endif()
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/torch_pjrt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT torch_pjrt NAMESPACE torch_pjrt:: FILE torch_pjrtTargets.cmake DESTINATION ${package})
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfig.cmake
       "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\ninclude(\${CMAKE_CURRENT_LIST_DIR}/torch_pjrtTargets.cmake)\n")
  write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfigVersion.cmake VERSION ${program_version}
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfigVersion.cmake
          DESTINATION ${package})
endif()
