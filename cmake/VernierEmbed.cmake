# vernier_embed(TARGET SYMBOL FILE)
# Puts the bytes of FILE into TARGET's read-only data, 4096-aligned so that a container's own alignment holds. The
# target's sources reach them as
#     #include "embed/SYMBOL.h"
#     std::span<const std::byte> bytes = vernier::embed::SYMBOL();
# The assembler's .incbin does it: no converter, no megabytes of generated text, and a rebuild when FILE changes.
function(vernier_embed target symbol file)
  get_filename_component(EMBED_FILE "${file}" ABSOLUTE)
  if(NOT EXISTS "${EMBED_FILE}")
    message(FATAL_ERROR "vernier_embed: no file '${EMBED_FILE}'")
  endif()
  set(EMBED_SYMBOL "${symbol}")
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/embedded")
  set(template "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed")
  configure_file("${template}.h.in" "${folder}/embed/${symbol}.h" @ONLY)
  configure_file("${template}.cc.in" "${folder}/${symbol}.cc" @ONLY)
  set_source_files_properties("${folder}/${symbol}.cc" PROPERTIES OBJECT_DEPENDS "${EMBED_FILE}")
  target_sources(${target} PRIVATE "${folder}/${symbol}.cc")
  target_include_directories(${target} PRIVATE "${folder}")
endfunction()
