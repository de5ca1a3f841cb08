# Installs into a prefix inside the build folder, moves the tree (no file may store its place),
# builds examples/generate.c with pkg-config alone, against the shared and the static library, and
# runs it on the bundled model.
cmake_minimum_required(VERSION 3.22)
if(NOT TOOL)
    message("*** SKIPPED: no pkg-config on this machine; the installation was not tested ***")
    return()
endif()
set(folder ${BINARY_DIR}/test_install)
set(prefix "${folder}/a moved prefix")
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR} --strip --prefix ${folder}/first
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${folder}/first ${prefix})

set(model ${prefix}/share/powerinfer/models/novella-7m.q8_0.powerinfer.gguf)
foreach(file bin/powerinfer include/powerinfer.h include/powerinfer_grammar.h include/powerinfer_status.h ${LIBDIR}/libpowerinfer.a ${LIBDIR}/libpowerinfer.so
        ${LIBDIR}/libpowerinfer.so.${VERSION} ${LIBDIR}/pkgconfig/powerinfer.pc
        share/powerinfer/models/novella-7m.q8_0.powerinfer.gguf
        share/doc/powerinfer/install.md share/man/man1/powerinfer.1 share/man/man1/powerinfer-run.1
        share/bash-completion/completions/powerinfer share/zsh/site-functions/_powerinfer
        share/fish/vendor_completions.d/powerinfer.fish)
    if(NOT EXISTS "${prefix}/${file}")
        message(FATAL_ERROR "not installed: ${file}")
    endif()
endforeach()

# ask(VARIABLE flags...): output of pkg-config, as a list.
set(ENV{PKG_CONFIG_PATH} "${prefix}/${LIBDIR}/pkgconfig")
function(ask variable)
    execute_process(COMMAND ${TOOL} ${ARGN} powerinfer OUTPUT_VARIABLE answer
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(answer UNIX_COMMAND "${answer}")
    set(${variable} ${answer} PARENT_SCOPE)
endfunction()
ask(version --modversion)
if(NOT version STREQUAL VERSION)
    message(FATAL_ERROR "pkg-config says version ${version}, the build ${VERSION}")
endif()
ask(cflags --cflags)
ask(libs --libs)
ask(static_libs --static --libs)
list(REMOVE_ITEM static_libs -lpowerinfer)

foreach(flag IN LISTS cflags)
    if(NOT flag MATCHES "^-I") # definitions of internal libraries must not leak
        message(FATAL_ERROR "pkg-config --cflags gives ${flag}")
    endif()
endforeach()

# The installed program has no symbols; the build folder keeps them.
if(NM)
    execute_process(COMMAND ${NM} "${prefix}/bin/powerinfer" OUTPUT_VARIABLE table ERROR_QUIET)
    execute_process(COMMAND ${NM} ${BINARY_DIR}/powerinfer OUTPUT_VARIABLE kept ERROR_QUIET)
    if(NOT table STREQUAL "" OR NOT kept MATCHES " main\n")
        message(FATAL_ERROR "the installed program is not stripped, or the built one is")
    endif()
endif()

# A program that defines names which the library uses internally: they neither clash nor bind to
# each other. (jansson also has the first name.)
file(WRITE ${folder}/names.c "#include <stdlib.h>
void utf8_encode(void);
void mem_alloc(void);
void error_set(void);
void pool_run(void);
void utf8_encode(void) { abort(); }
void mem_alloc(void) { abort(); }
void error_set(void) { abort(); }
void pool_run(void) { abort(); }
")

set(flags -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror)
if(SANITIZE)
    list(APPEND flags -fsanitize=${SANITIZE})
endif()
execute_process(COMMAND ${C_COMPILER} ${flags} ${SOURCE_DIR}/examples/generate.c ${folder}/names.c
                ${cflags} ${libs}
                -o ${folder}/generate COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${C_COMPILER} ${flags} ${SOURCE_DIR}/examples/generate.c ${folder}/names.c
                ${cflags} ${prefix}/${LIBDIR}/libpowerinfer.a ${static_libs} -o ${folder}/generate_static
                COMMAND_ERROR_IS_FATAL ANY)

# The installed program finds the model of its own installation; the examples print its greedy text.
set(prompt "The old lighthouse keeper")
execute_process(COMMAND "${prefix}/bin/powerinfer" --version OUTPUT_VARIABLE said
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT said STREQUAL "powerinfer ${VERSION}\n")
    message(FATAL_ERROR "the program says: ${said}")
endif()
execute_process(COMMAND "${prefix}/bin/powerinfer" run -q -p ${prompt} -n 24 --temp 0
                OUTPUT_VARIABLE expected COMMAND_ERROR_IS_FATAL ANY)
string(STRIP "${expected}" expected)
string(LENGTH "${expected}" length)
if(length LESS 40)
    message(FATAL_ERROR "too little text: ${expected}")
endif()
set(ENV{LD_LIBRARY_PATH} "${prefix}/${LIBDIR}")
foreach(program generate generate_static)
    execute_process(COMMAND ${folder}/${program} ${model} ${prompt} 24 OUTPUT_VARIABLE text
                    COMMAND_ERROR_IS_FATAL ANY)
    string(STRIP "${text}" text)
    if(NOT text STREQUAL expected)
        message(FATAL_ERROR "${program} wrote: ${text}\npowerinfer run wrote: ${expected}")
    endif()
    execute_process(COMMAND ${folder}/${program} ${folder}/nothing.gguf x RESULT_VARIABLE status
                    ERROR_VARIABLE line OUTPUT_VARIABLE text)
    if(NOT status EQUAL 1 OR NOT line MATCHES "nothing.gguf" OR NOT text STREQUAL "")
        message(FATAL_ERROR "${program} of a missing model: status ${status}: ${line}${text}")
    endif()
endforeach()
file(REMOVE_RECURSE ${folder})
message("${expected}")
