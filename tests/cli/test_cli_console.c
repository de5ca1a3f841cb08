/* test_cli_console.c: powerinfer chat in a console of Windows: text of any language, editing,
 * completion, history, Ctrl-C at the prompt and in an answer; the end of chat, serve and a command
 * that writes a file when the window is closed. The console is a pseudo console, which needs no
 * window. The parts of this program that run in it type and read the screen; what they miss is in
 * the file MISSED. */
#include <direct.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <winsock2.h>

#include <windows.h>

#include <cmocka.h>

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "os_file.h"
#include "os_thread.h"

#define FOLDER  "cli_console"
#define WFOLDER L"cli_console"
#define MISSED  "cli_console_missed"
#define NO_KEY  L'\uffff' /* the next character is the code of a key */

enum { WAIT_SECONDS = 60, SCREEN_MAX = 1 << 16, LINE_MAX_UNITS = 1024 };

/* ---- the part in the console ----------------------------------------------------------------- */

static HANDLE keyboard, screen;
static PROCESS_INFORMATION child;

static void give_up(const wchar_t *expected, const wchar_t *shown) {
    FILE *f = fopen(MISSED, "wb");
    char text[4 * SCREEN_MAX / 8] = "";
    const wchar_t *const parts[] = {expected, L"\n--- but:\n", shown};
    for (int i = 0; f && i < 3; i++) {
        int n = WideCharToMultiByte(CP_UTF8, 0, parts[i], -1, text, sizeof text, NULL, NULL);
        fwrite(text, 1, n > 0 ? (size_t)n - 1 : 0, f);
    }
    if (f) fclose(f);
    if (child.hProcess) TerminateProcess(child.hProcess, 1);
    ExitProcess(1);
}

/* The rows of the screen up to the cursor, without the blanks at their ends. */
static const wchar_t *look(void) {
    static wchar_t shown[SCREEN_MAX];
    CONSOLE_SCREEN_BUFFER_INFO info;
    size_t used = 0;
    if (!GetConsoleScreenBufferInfo(screen, &info)) give_up(L"a screen", L"");
    for (SHORT row = 0; row <= info.dwCursorPosition.Y; row++) {
        DWORD n = 0;
        if (used + (size_t)info.dwSize.X + 2 > SCREEN_MAX) break;
        (void)ReadConsoleOutputCharacterW(screen, shown + used, (DWORD)info.dwSize.X,
                                          (COORD){0, row}, &n);
        while (n > 0 && (shown[used + n - 1] == L' ' || shown[used + n - 1] == 0)) n--;
        used += n;
        shown[used++] = L'\n';
    }
    shown[used] = 0;
    return shown;
}

static void wait_for(const wchar_t *text) {
    double end = clock_seconds() + WAIT_SECONDS;
    while (!wcsstr(look(), text)) {
        if (clock_seconds() > end) give_up(text, look());
        os_sleep(0.02);
    }
}

static bool row_is(const wchar_t *text) {
    const wchar_t *shown = look(), *last = shown + wcslen(shown) - 1;
    const wchar_t *begin = last;
    while (begin > shown && begin[-1] != L'\n') begin--;
    return wcsncmp(begin, text, (size_t)(last - begin)) == 0 &&
           wcslen(text) == (size_t)(last - begin);
}

/* Waits until the row of the cursor is `text`. */
static void wait_row(const wchar_t *text) {
    double end = clock_seconds() + WAIT_SECONDS;
    while (!row_is(text)) {
        if (clock_seconds() > end) give_up(text, look());
        os_sleep(0.02);
    }
}

static void type(const wchar_t *keys) {
    for (; *keys; keys++) {
        INPUT_RECORD event = {.EventType = KEY_EVENT};
        KEY_EVENT_RECORD *k = &event.Event.KeyEvent;
        DWORD n;
        bool is_key = *keys == NO_KEY;
        if (is_key) keys++;
        *k = (KEY_EVENT_RECORD){.bKeyDown = TRUE, .wRepeatCount = 1};
        if (is_key)
            k->wVirtualKeyCode = *keys;
        else
            k->uChar.UnicodeChar = *keys;
        for (int down = 1; down >= 0; down--) {
            k->bKeyDown = down;
            if (!WriteConsoleInputW(keyboard, &event, 1, &n)) give_up(L"a keyboard", look());
        }
    }
}

static void clear(void) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    DWORD n;
    GetConsoleScreenBufferInfo(screen, &info);
    FillConsoleOutputCharacterW(screen, L' ', (DWORD)info.dwSize.X * (DWORD)info.dwSize.Y,
                                (COORD){0, 0}, &n);
    SetConsoleCursorPosition(screen, (COORD){0, 0});
}

#define BUNDLED     L"/models/novella-7m.q8_0.powerinfer.gguf"
#define MODEL       L" -m " WIDE(TEST_SOURCE_DIR) BUNDLED L" --device cpu "
#define WIDE(text)  WIDEN(text)
#define WIDEN(text) L##text

static void start(const wchar_t *arguments) {
    wchar_t line[LINE_MAX_UNITS];
    STARTUPINFOW how = {.cb = sizeof how,
                        .dwFlags = STARTF_USESTDHANDLES,
                        .hStdInput = keyboard,
                        .hStdOutput = screen,
                        .hStdError = screen};
    clear();
    swprintf(line, LINE_MAX_UNITS, L"\"%hs/powerinfer.exe\" %ls", TEST_BINARY_DIR, arguments);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &how, &child))
        give_up(L"a process", line);
}

static void begin(void) {
    start(L"cha"
          L"t" MODEL L"--temp 0 --color off --chat-template chatml -n 100000 -c 8192 --ignore-eos");
    wait_row(L">");
}

static void expect_status(DWORD expected, double seconds) {
    DWORD status = ~expected;
    wchar_t text[64];
    if (WaitForSingleObject(child.hProcess, (DWORD)(seconds * 1e3)) != WAIT_OBJECT_0 ||
        !GetExitCodeProcess(child.hProcess, &status) || status != expected) {
        swprintf(text, 64, L"the end with status 0x%lx, not 0x%lx", expected, status);
        give_up(text, look());
    }
    CloseHandle(child.hProcess);
    CloseHandle(child.hThread);
    child.hProcess = NULL;
}

static void expect_end(void) {
    expect_status(0, WAIT_SECONDS);
}

static BOOL WINAPI ignore(DWORD event) {
    (void)event;
    return TRUE; /* the event is the chat's */
}

static HANDLE open_console(const wchar_t *name) {
    SECURITY_ATTRIBUTES inherited = {.nLength = sizeof inherited, .bInheritHandle = TRUE};
    HANDLE h = CreateFileW(name, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE,
                           &inherited, OPEN_EXISTING, 0, NULL);
    if (h == INVALID_HANDLE_VALUE) give_up(L"a console", name);
    return h;
}

static int talk(void) {
    static const wchar_t up[] = {NO_KEY, VK_UP, 0}, left[] = {NO_KEY, VK_LEFT, 0};
    SetConsoleCtrlHandler(ignore, TRUE);
    keyboard = open_console(L"CONIN$");
    screen = open_console(L"CONOUT$");
    begin();
    type(L"/he\t");
    wait_row(L"> /help");
    type(L"\r");
    wait_for(L"/bye");
    wait_row(L">");
    type(L"/s\t"); /* the choices, then the line again */
    wait_for(L"/stats");
    wait_row(L"> /s");
    type(L"\3"); /* clears the line */
    wait_row(L">");
    type(L"Gr\u00fc\u00dfe b");
    type(left);
    type(L"\u4f60\u597d");
    wait_for(L"Gr\u00fc\u00dfe ");
    type(L"\r");
    os_sleep(0.5);
    if (!GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0))
        give_up(L"an event", L""); /* stops the answer */
    wait_row(L">");
    type(L"/save " WFOLDER L"/talk\r");
    wait_for(L"saved ");
    wait_row(L">");
    type(L"/load " WFOLDER L"/ta\t");
    wait_row(L"> /load " WFOLDER L"/talk");
    type(L"\3\3");
    wait_row(L"leave? [y/n]");
    type(L"n\r");
    wait_row(L">");
    type(up);
    wait_row(L"> /save " WFOLDER L"/talk");
    type(L"\33/bye\r");
    expect_end();
    begin(); /* the history is that of the last chat */
    type(up);
    wait_row(L"> /bye");
    type(up);
    type(up);
    wait_for(L"Gr\u00fc\u00dfe ");
    type(L"\3\4");
    expect_end();
    return 0;
}

/* Does what the system does in a process whose window is closed: it starts a thread in this
 * function, which calls the handlers. wine 8 has no window to close, and sends no such event by
 * itself. The program then has five seconds. */
static void close_window(void) {
    static const double moment = 5;
    LPTHREAD_START_ROUTINE routine;
    FARPROC found = GetProcAddress(GetModuleHandleW(L"kernel32.dll"), "CtrlRoutine");
    memcpy(&routine, &found, sizeof routine);
    HANDLE thread = found ? CreateRemoteThread(child.hProcess, NULL, 0, routine,
                                               (void *)(uintptr_t)CTRL_CLOSE_EVENT, 0, NULL)
                          : NULL;
    if (!thread) give_up(L"a thread in the program", L"");
    if (WaitForSingleObject(child.hProcess, (DWORD)(moment * 1e3)) != WAIT_OBJECT_0)
        give_up(L"the end within five seconds", look());
    CloseHandle(thread);
}

/* The exit status of programs that the console ends, STATUS_CONTROL_C_EXIT. */
static const DWORD ended = 0xC000013A;

static int count_files(const wchar_t *pattern) {
    WIN32_FIND_DATAW found;
    HANDLE search = FindFirstFileW(pattern, &found);
    int n = search != INVALID_HANDLE_VALUE;
    while (n > 0 && FindNextFileW(search, &found)) n++;
    if (n > 0) FindClose(search);
    return n;
}

/* A client of the server: sends a request, and reads its answer until the connection ends. */
static SOCKET ask_server(void) {
    static const char body[] = "{\"prompt\":\"The\",\"ignore_eos\":true,\"max_tokens\":200,"
                               "\"stream\":true}";
    static const wchar_t before_port[] = L"listening on http://127.0.0.1:";
    char request[512];
    WSADATA data;
    wait_for(before_port);
    unsigned long port = wcstoul(wcsstr(look(), before_port) + wcslen(before_port), NULL, 10);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((u_short)port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     sizeof body - 1, body);
    if (WSAStartup(MAKEWORD(2, 2), &data) != 0) give_up(L"sockets", L"");
    SOCKET s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (const struct sockaddr *)(const void *)&to, sizeof to) != 0 ||
        send(s, request, n, 0) != n)
        give_up(L"a connection", look());
    return s;
}

static void read_answer(SOCKET s, char *text, size_t n_text, const char *until) {
    size_t used = strlen(text);
    while (used + 1 < n_text && !(until && strstr(text, until))) {
        int n = recv(s, text + used, (int)(n_text - 1 - used), 0);
        if (n <= 0) break;
        used += (size_t)n;
        text[used] = '\0';
    }
}

static int close_windows(void) {
    static char answer[1 << 18];
    keyboard = open_console(L"CONIN$");
    screen = open_console(L"CONOUT$");
    begin(); /* in an answer */
    type(L"The window is closed\r");
    os_sleep(0.5);
    close_window();
    expect_status(128 + SIGTERM, 0);
    begin(); /* while it waits for a message */
    type(L"unfinished");
    wait_row(L"> unfinished");
    close_window();
    expect_status(ended, 0);

    start(L"synth --shape llama-7b --layers 2 -o " WFOLDER L"/closed.gguf");
    double end = clock_seconds() + WAIT_SECONDS;
    while (count_files(WFOLDER L"/*.tmp") == 0) {
        if (clock_seconds() > end) give_up(L"a temporary file", look());
        os_sleep(0.01);
    }
    close_window();
    expect_status(ended, 0);
    if (count_files(WFOLDER L"/*.tmp") != 0) give_up(L"no temporary file", L"");
    if (count_files(WFOLDER L"/closed.gguf") != 0) give_up(L"no file", L"");

    start(L"serve" MODEL L"--port 0 -c 512");
    SOCKET s = ask_server();
    read_answer(s, answer, sizeof answer, "data: ");
    close_window(); /* the server completes the answer */
    expect_status(0, 0);
    read_answer(s, answer, sizeof answer, NULL);
    if (!strstr(answer, "data: [DONE]")) give_up(L"a complete answer", L"");
    closesocket(s);
    return 0;
}

/* ---- the test -------------------------------------------------------------------------------- */

static HANDLE drawn, typed; /* this program's ends of the pseudo console's pipes */

/* Somebody must read what the console draws. */
static void read_drawn(void *unused) {
    char bytes[4096];
    DWORD n;
    (void)unused;
    while (ReadFile(drawn, bytes, sizeof bytes, &n, NULL) && n > 0) continue;
}

/* Runs a part of this program in a new pseudo console; returns its status. */
static DWORD run_in_console(const wchar_t *part) {
    wchar_t program[MAX_PATH], line[MAX_PATH + 16];
    STARTUPINFOEXW start = {.StartupInfo = {.cb = sizeof start}};
    PROCESS_INFORMATION process;
    HANDLE input, output;
    HPCON console;
    os_thread reader;
    SIZE_T n_bytes = 0;
    DWORD status = 1;
    assert_true(CreatePipe(&input, &typed, NULL, 0) && CreatePipe(&drawn, &output, NULL, 0));
    assert_int_equal(CreatePseudoConsole((COORD){80, 40}, input, output, 0, &console), S_OK);
    (void)InitializeProcThreadAttributeList(NULL, 1, 0, &n_bytes);
    start.lpAttributeList = mem_alloc(n_bytes);
    assert_non_null(start.lpAttributeList);
    assert_true(InitializeProcThreadAttributeList(start.lpAttributeList, 1, 0, &n_bytes) &&
                UpdateProcThreadAttribute(start.lpAttributeList, 0,
                                          PROC_THREAD_ATTRIBUTE_PSEUDOCONSOLE, console,
                                          sizeof console, NULL, NULL));
    assert_true(GetModuleFileNameW(NULL, program, MAX_PATH) < MAX_PATH);
    swprintf(line, MAX_PATH + 16, L"\"%ls\" %ls", program, part);
    assert_true(CreateProcessW(NULL, line, NULL, NULL, FALSE, EXTENDED_STARTUPINFO_PRESENT, NULL,
                               NULL, &start.StartupInfo, &process));
    CloseHandle(input);
    CloseHandle(output);
    assert_int_equal(os_thread_start(&reader, read_drawn, NULL), 0);
    WaitForSingleObject(process.hProcess, INFINITE);
    assert_true(GetExitCodeProcess(process.hProcess, &status));
    CloseHandle(process.hProcess);
    CloseHandle(process.hThread);
    ClosePseudoConsole(console);
    os_thread_join(&reader);
    CloseHandle(typed);
    CloseHandle(drawn);
    mem_free(start.lpAttributeList);
    return status;
}

static void expect_part(const wchar_t *part) {
    char *text = NULL, state[MAX_PATH];
    size_t n;
    assert_int_equal(_chdir(TEST_BINARY_DIR), 0);
    (void)os_folder_create(FOLDER);
    (void)os_path_remove(FOLDER "/powerinfer/chat_history");
    (void)os_path_remove(FOLDER "/talk");
    (void)os_path_remove(MISSED);
    assert_true(GetFullPathNameA(FOLDER, MAX_PATH, state, NULL) < MAX_PATH); /* with a drive */
    assert_true(SetEnvironmentVariableA("XDG_STATE_HOME", state));
    DWORD status = run_in_console(part);
    if (status != 0 && file_read(MISSED, SCREEN_MAX, &text, &n, NULL) == PI_OK)
        fail_msg("expected: %s", text);
    assert_int_equal(status, 0);
}

/* Lines are in the history also when the window was closed in the answer. */
static void test_close(void **state) {
    (void)state;
    char *text = NULL;
    size_t n;
    expect_part(L"close");
    assert_int_equal(file_read(FOLDER "/powerinfer/chat_history", 1 << 20, &text, &n, NULL), PI_OK);
    assert_non_null(strstr(text, "The window is closed\n"));
    mem_free(text);
}

static void test_chat(void **state) {
    (void)state;
    char *text = NULL;
    size_t n;
    expect_part(L"talk");
    assert_int_equal(file_read(FOLDER "/talk", 1 << 20, &text, &n, NULL), PI_OK);
    assert_non_null(strstr(text, "{\"role\":\"user\",\"content\":\"Gr\xc3\xbc\xc3\x9f"
                                 "e \xe4\xbd\xa0\xe5\xa5\xbd"
                                 "b\"}\n"));
    mem_free(text);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "talk") == 0) return talk();
    if (argc == 2 && strcmp(argv[1], "close") == 0) return close_windows();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat), cmocka_unit_test(test_close)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
