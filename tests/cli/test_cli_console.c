/* test_cli_console.c: powerinfer chat in a console of Windows: text of any language, editing,
 * completion, history, Ctrl-C at the prompt and in an answer. The console is a pseudo console,
 * which needs no window. The part of this program that runs in it types and reads the screen; what
 * it misses is in the file MISSED. */
#include <direct.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

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
static PROCESS_INFORMATION chat;

static void give_up(const wchar_t *expected, const wchar_t *shown) {
    FILE *f = fopen(MISSED, "wb");
    char text[4 * SCREEN_MAX / 8] = "";
    const wchar_t *const parts[] = {expected, L"\n--- but:\n", shown};
    for (int i = 0; f && i < 3; i++) {
        int n = WideCharToMultiByte(CP_UTF8, 0, parts[i], -1, text, sizeof text, NULL, NULL);
        fwrite(text, 1, n > 0 ? (size_t)n - 1 : 0, f);
    }
    if (f) fclose(f);
    if (chat.hProcess) TerminateProcess(chat.hProcess, 1);
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

static void begin(void) {
    wchar_t line[LINE_MAX_UNITS];
    STARTUPINFOW start = {.cb = sizeof start,
                          .dwFlags = STARTF_USESTDHANDLES,
                          .hStdInput = keyboard,
                          .hStdOutput = screen,
                          .hStdError = screen};
    clear();
    swprintf(line, LINE_MAX_UNITS,
             L"\"%hs/powerinfer.exe\" chat -m %hs/models/novella-7m.q8_0.powerinfer.gguf --temp 0 "
             L"--color off --device cpu --chat-template chatml -n 100000 -c 8192 --ignore-eos",
             TEST_BINARY_DIR, TEST_SOURCE_DIR);
    if (!CreateProcessW(NULL, line, NULL, NULL, TRUE, 0, NULL, NULL, &start, &chat))
        give_up(L"a process", line);
    wait_row(L">");
}

static void expect_end(void) {
    DWORD status = 1;
    if (WaitForSingleObject(chat.hProcess, WAIT_SECONDS * 1000) != WAIT_OBJECT_0 ||
        !GetExitCodeProcess(chat.hProcess, &status) || status != 0)
        give_up(L"the end with status 0", look());
    CloseHandle(chat.hProcess);
    CloseHandle(chat.hThread);
    chat.hProcess = NULL;
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

static void test_chat(void **state) {
    (void)state;
    char *text = NULL;
    size_t n;
    assert_int_equal(_chdir(TEST_BINARY_DIR), 0);
    (void)os_folder_create(FOLDER);
    (void)os_path_remove(FOLDER "/powerinfer/chat_history");
    (void)os_path_remove(FOLDER "/talk");
    (void)os_path_remove(MISSED);
    assert_true(SetEnvironmentVariableA("XDG_STATE_HOME", TEST_BINARY_DIR "/" FOLDER));
    DWORD status = run_in_console(L"talk");
    if (status != 0 && file_read(MISSED, SCREEN_MAX, &text, &n, NULL) == PI_OK)
        fail_msg("expected: %s", text);
    assert_int_equal(status, 0);
    assert_int_equal(file_read(FOLDER "/talk", 1 << 20, &text, &n, NULL), PI_OK);
    assert_non_null(strstr(text, "{\"role\":\"user\",\"content\":\"Gr\xc3\xbc\xc3\x9f"
                                 "e \xe4\xbd\xa0\xe5\xa5\xbd"
                                 "b\"}\n"));
    mem_free(text);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "talk") == 0) return talk();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chat)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
