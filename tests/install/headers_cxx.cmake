# C++ programs can include the public headers unchanged: each alone and all together, with the
# warnings of a strict program, in the oldest standard still in use and a recent one; the
# declarations have C linkage.
cmake_minimum_required(VERSION 3.22)
if(NOT TOOL)
    message("*** SKIPPED: no C++ compiler on this machine; the headers were not tested in C++ ***")
    return()
endif()
set(folder ${BINARY_DIR}/test_headers_cxx)
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
set(all "")
foreach(header powerinfer_status.h powerinfer_metadata.h powerinfer_session.h powerinfer_activity.h powerinfer_memory.h powerinfer_placement.h powerinfer_sampler.h powerinfer.h powerinfer_generation.h powerinfer_chat.h powerinfer_embed.h powerinfer_speculate.h powerinfer_grammar.h powerinfer_tools.h)
    file(WRITE ${folder}/${header}.cpp "#include <${header}>\n#include <${header}>\n")
    list(APPEND sources ${folder}/${header}.cpp)
    string(APPEND all "#include <${header}>\n")
endforeach()
file(WRITE ${folder}/all.cpp "${all}
extern \"C\" const char *(*version)(void);
const char *(*version)(void) = pi_version;
int main() {
    pi_model_options model = pi_model_default_options();
    pi_context_options context = pi_context_default_options();
    pi_perplexity_options perplexity = pi_perplexity_default_options();
    pi_error err;
    pi_model *opened = nullptr;
    context.n_threads = 1;
    perplexity.context = context;
    return pi_model_open(\"/nowhere/model.gguf\", &model, &opened, &err) == PI_ERR_IO ? 0 : 1;
}
")
set(flags -I${SOURCE_DIR}/include -I${SOURCE_DIR}/src/base -Wall -Wextra -Wpedantic -Wshadow
    -Wconversion -Werror)
foreach(standard c++11 c++17)
    foreach(source ${sources} ${folder}/all.cpp)
        execute_process(COMMAND ${TOOL} -std=${standard} ${flags} -fsyntax-only ${source}
                        COMMAND_ERROR_IS_FATAL ANY)
    endforeach()
endforeach()
set(link)
if(SANITIZE)
    set(link -fsanitize=${SANITIZE})
endif()
execute_process(COMMAND ${TOOL} -std=c++11 ${flags} ${link} ${folder}/all.cpp -o ${folder}/all
                -L${BINARY_DIR}/src -lpowerinfer -Wl,-rpath,${BINARY_DIR}/src
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${folder}/all COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${folder})
message("headers compile as C++11 and C++17, and link")
