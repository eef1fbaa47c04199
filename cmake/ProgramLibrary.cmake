# The C++ library of include/torch_pjrt (torch_pjrt::Program), shared and static, and pjrt-run. They need neither torch nor
# Python. find_package(torch_pjrt) finds them where they were installed, as torch_pjrt::program and
# torch_pjrt::program_static. A wheel (SKBUILD) has the shared library and pjrt-run.
find_package(Threads REQUIRED)
set(program_rooms room_runner room_file room_disk room_hlo room_pjrt room_linkage)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/python/torch_pjrt/__init__.py line REGEX "^__version__")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" program_version "${line}")

function(program_library target type)
  add_library(${target} ${type} EXCLUDE_FROM_ALL)
  foreach(room ${program_rooms})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${room}>)
  endforeach()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME torch_pjrt EXPORT_NAME ${ARGN} LINKER_LANGUAGE CXX)
endfunction()
program_library(torch_pjrt_program SHARED program)
program_library(torch_pjrt_program_static STATIC program_static)
target_link_options(torch_pjrt_program PRIVATE -Wl,--gc-sections -Wl,-Bsymbolic)
if(NOT SKBUILD AND NOT TORCH_PJRT_INPLACE)  # a wheel can't hold the symbolic links that versions are
  set_target_properties(torch_pjrt_program PROPERTIES VERSION ${program_version} SOVERSION 0)
endif()

add_executable(pjrt-run EXCLUDE_FROM_ALL ${CMAKE_CURRENT_SOURCE_DIR}/src/command/pjrt_run.cpp)
target_link_libraries(pjrt-run PRIVATE torch_pjrt_program_static)
if(TORCH_PJRT_INPLACE)  # torch_pjrt.library_path() of a checkout
  set_target_properties(torch_pjrt_program PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/python/torch_pjrt/lib)
endif()
if(SKBUILD)
  include(OldestSystem)
  for_the_oldest_system(torch_pjrt_program)
  for_the_oldest_system(pjrt-run)
endif()

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

if(TORCH_PJRT_PROGRAM OR SKBUILD)
  include(GNUInstallDirs)
  include(CMakePackageConfigHelpers)
  if(SKBUILD)  # below site-packages, where torch_pjrt.include_path() and library_path() say
    set(targets torch_pjrt_program)
    set(folders torch_pjrt/lib torch_pjrt/include ${SKBUILD_SCRIPTS_DIR})
  else()
    set(targets torch_pjrt_program torch_pjrt_program_static)
    set(folders ${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_BINDIR})
  endif()
  list(POP_FRONT folders libraries headers programs)
  set(package ${libraries}/cmake/torch_pjrt)
  foreach(target ${targets} pjrt-run)
    set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL OFF)
  endforeach()
  install(TARGETS ${targets} EXPORT torch_pjrt LIBRARY DESTINATION ${libraries} ARCHIVE DESTINATION ${libraries}
          INCLUDES DESTINATION ${headers})
  install(TARGETS pjrt-run RUNTIME DESTINATION ${programs})
  if(TORCH_PJRT_ONEDNN)
    install(TARGETS torch_pjrt_onednn DESTINATION ${libraries})
  endif()
  install(DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/include/torch_pjrt DESTINATION ${headers})
  install(EXPORT torch_pjrt NAMESPACE torch_pjrt:: FILE torch_pjrtTargets.cmake DESTINATION ${package})
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfig.cmake
       "include(CMakeFindDependencyMacro)\nfind_dependency(Threads)\ninclude(\${CMAKE_CURRENT_LIST_DIR}/torch_pjrtTargets.cmake)\n")
  write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfigVersion.cmake VERSION ${program_version}
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/torch_pjrtConfigVersion.cmake
          DESTINATION ${package})
endif()
