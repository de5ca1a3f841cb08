# The archive for Windows: the program and the bundled model, and in lib/ and include/ the library. A
# folder that works wherever it is unpacked.
install(TARGETS powerinfer RUNTIME DESTINATION .)
install(DIRECTORY models/ DESTINATION models
    FILES_MATCHING PATTERN "*.gguf" PATTERN "*.jinja" PATTERN "calibration.txt")
install(TARGETS powerinfer_shared RUNTIME DESTINATION lib ARCHIVE DESTINATION lib)
install(FILES ${PI_DEF} ${PI_IMPORT_LIB} DESTINATION lib)
install(DIRECTORY include/ DESTINATION include FILES_MATCHING PATTERN "*.h")
install(FILES src/base/powerinfer_status.h DESTINATION include)
install(FILES examples/generate.c DESTINATION examples)
install(FILES LICENSE DESTINATION licenses RENAME powerinfer.txt)
# Of the libraries that are linked statically; cmocka is a library of tests.
install(DIRECTORY ${PI_WINDOWS_LIBS}/licenses/ DESTINATION licenses PATTERN "cmocka.txt" EXCLUDE)
install(FILES docs/windows.md DESTINATION . RENAME README.txt)

set(name powerinfer-windows-x86_64)
add_custom_target(package_windows
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${name} ${name}.zip
    COMMAND ${CMAKE_COMMAND} --install . --strip --prefix ${PROJECT_BINARY_DIR}/${name}
    COMMAND ${CMAKE_COMMAND} -E tar cf ${name}.zip --format=zip ${name}
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR}
    DEPENDS powerinfer powerinfer_shared
    COMMENT "Packing ${name}.zip" VERBATIM)
