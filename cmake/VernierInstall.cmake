# What `cmake --install` puts under a prefix: program, library, public headers, man page, completions, demo model.
include(GNUInstallDirs)

# One archive of all layers, so that a user of the library links a single file.
get_property(folders GLOBAL PROPERTY VERNIER_LIBRARIES)
list(REMOVE_ITEM folders vernier_cli)
set(objects)
foreach(folder IN LISTS folders)
  list(APPEND objects $<TARGET_OBJECTS:${folder}>)
endforeach()
add_library(libvernier STATIC ${objects})
set(archives ${PCRE2_LIBRARY})
if(TARGET vernier_backend_cuda)
  list(APPEND archives "${CUDA_cudart_static_LIBRARY}")
endif()
if(archives)
  # Third-party archives go inside too. CMake makes the archive anew at every link, so nothing is added twice. The
  # script is for GNU ar: LLVM's, which CMake takes beside clang, cannot open an archive.
  find_program(VERNIER_GNU_AR NAMES ar REQUIRED)
  list(TRANSFORM archives PREPEND "addlib " OUTPUT_VARIABLE additions)
  list(JOIN additions "\n" additions)
  file(WRITE "${CMAKE_BINARY_DIR}/bundle.mri" "open libvernier.a\n${additions}\nsave\nend\n")
  add_custom_command(TARGET libvernier POST_BUILD COMMAND ${VERNIER_GNU_AR} -M < "${CMAKE_BINARY_DIR}/bundle.mri"
    WORKING_DIRECTORY "${CMAKE_BINARY_DIR}" VERBATIM)
endif()
set_target_properties(libvernier PROPERTIES OUTPUT_NAME vernier EXPORT_NAME vernier LINKER_LANGUAGE CXX)
target_compile_features(libvernier INTERFACE cxx_std_20)
target_include_directories(libvernier INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_options(libvernier INTERFACE -pthread)

install(TARGETS libvernier EXPORT vernier-config ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT vernier-config NAMESPACE vernier:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/vernier)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/include/vernier" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES "${CMAKE_SOURCE_DIR}/models/demo.gguf" DESTINATION ${CMAKE_INSTALL_DATADIR}/vernier/models)

if(TARGET vernier)
  install(TARGETS vernier RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(EXISTS "${CMAKE_SOURCE_DIR}/docs/man/vernier.1")
    install(FILES "${CMAKE_SOURCE_DIR}/docs/man/vernier.1" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
  # The program writes its own completions, so they cannot differ from it.
  set(completions "${CMAKE_BINARY_DIR}/completions")
  add_custom_command(OUTPUT "${completions}/vernier" "${completions}/_vernier" "${completions}/vernier.fish"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${completions}"
    COMMAND vernier completion bash > "${completions}/vernier"
    COMMAND vernier completion zsh > "${completions}/_vernier"
    COMMAND vernier completion fish > "${completions}/vernier.fish"
    DEPENDS vernier VERBATIM)
  add_custom_target(vernier_completions ALL DEPENDS "${completions}/vernier")
  install(FILES "${completions}/vernier" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES "${completions}/_vernier" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES "${completions}/vernier.fish" DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
