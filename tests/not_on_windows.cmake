# The tests that a build for Windows neither builds nor runs, and why; their label is no-windows. Other
# tests leave out single functions: `#if !defined(_WIN32)` in their sources gives the reasons.
pi_not_on(windows "starts a solver of this machine, and compares: nothing in it depends on the system" place_glpsol)
pi_not_on(windows "reads the files of Linux's drivers" gpu_kfd gpu_presence)
pi_not_on(windows "mounts, namespaces, locks of descriptors and killed children; base_os and base_windows test replacement"
          base_output)
pi_not_on(windows "reads /proc and /sys of other machines; base_windows has the topology of Windows" base_machine)
pi_not_on(windows "processes of POSIX: signals, limits of CPU time; cli_console tests the events of a console" cli_signals)
pi_not_on(windows "compares with regex.h of POSIX: nothing in it depends on the system" schema)
# The folders of these tests do not add them for Windows:
#   fuzz_*, corpus_*, tidy*          sources and parsers of bytes do not depend on the system
#   fetch*                           a hub with calls of POSIX, full disks by mounts; windows_readme downloads with -hf
#   engine_paging_group              control groups of Linux
#   cli_typing                       libedit; cli_console tests the editor of Windows
#   cluster*                         MPI
#   server_{program,clients,page,proxy,replicas,killed}  nginx, browsers and clients of this machine
#   binding_*                        the interpreters of this machine load its libraries
#   *_symbols, headers_cxx, copied_tree, install_example, recipes, first_card  the installation of Linux;
#                                    windows_archive and windows_readme test the zip
#   vulkan_*                         two run under wine (pi_vulkan_test WINDOWS); Linux runs all of them
