/* windows_terminal.c: the console speaks UTF-8 and control sequences while the program runs. */
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "os_terminal.h"
#include "windows_call.h"
#include "windows_terminal.h"

#include <shellapi.h>

#ifndef ENABLE_VIRTUAL_TERMINAL_PROCESSING
#define ENABLE_VIRTUAL_TERMINAL_PROCESSING 4
#endif

static HANDLE handle_of(FILE *stream) {
    return (HANDLE)_get_osfhandle(_fileno(stream));
}

bool os_is_terminal(FILE *stream) {
    return windows_is_console(handle_of(stream));
}

int os_terminal_columns(FILE *stream) {
    CONSOLE_SCREEN_BUFFER_INFO info;
    if (!GetConsoleScreenBufferInfo(handle_of(stream), &info)) return 0;
    return info.srWindow.Right - info.srWindow.Left + 1;
}

/* ---- width ----------------------------------------------------------------------------------- */

typedef struct code_range {
    uint32_t first, last;
} code_range;

/* Unicode's East Asian Width W and F, in blocks. */
static const code_range wide[] = {
    {0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},   {0x23e9, 0x23ec},
    {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},   {0x26aa, 0x26ab},
    {0x26bd, 0x26be},   {0x26c4, 0x26c5},   {0x26f2, 0x26f3},   {0x2705, 0x2705},
    {0x270a, 0x270b},   {0x2728, 0x2728},   {0x274c, 0x274c},   {0x274e, 0x274e},
    {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},   {0x2b1b, 0x2b1c},
    {0x2b50, 0x2b50},   {0x2b55, 0x2b55},   {0x2e80, 0x303e},   {0x3041, 0x4dbf},
    {0x4e00, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},   {0xf900, 0xfaff},
    {0xfe10, 0xfe19},   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},
    {0x16fe0, 0x18d08}, {0x1b000, 0x1b2fb}, {0x1f18e, 0x1f18e}, {0x1f191, 0x1f19a},
    {0x1f200, 0x1f320}, {0x1f32d, 0x1f64f}, {0x1f680, 0x1f6c5}, {0x1f6d0, 0x1f6dc},
    {0x1f6eb, 0x1f6ec}, {0x1f6f4, 0x1f6fc}, {0x1f7e0, 0x1f7eb}, {0x1f90c, 0x1f9ff},
    {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};
/* Combining marks and other characters without a cell. */
static const code_range narrow[] = {
    {0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a},  {0x064b, 0x065f},
    {0x0e31, 0x0e31}, {0x0e34, 0x0e3a}, {0x0e47, 0x0e4e}, {0x1ab0, 0x1aff},  {0x1dc0, 0x1dff},
    {0x200b, 0x200f}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},  {0x302a, 0x302d},
    {0x3099, 0x309a}, {0x0941, 0x0948}, {0x094d, 0x094d}, {0xe0100, 0xe01ef}};

static bool is_among(uint32_t code, const code_range *ranges, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last) return true;
    return false;
}

int os_character_width(const char *character, size_t n) {
    wchar_t units[2];
    int n_units = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, character, (int)n, units, 2);
    if (n_units == 0) return -1;
    uint32_t code = units[0];
    if (n_units == 2) code = 0x10000 + ((code - 0xd800) << 10) + (units[1] - 0xdc00u);
    if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return -1;
    if (is_among(code, narrow, sizeof narrow / sizeof *narrow)) return 0;
    return is_among(code, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

/* ---- input ----------------------------------------------------------------------------------- */

enum { LINE_UNITS = 4096 };

/* Standard input belongs to one thread at a time. */
static struct {
    char text[3 * LINE_UNITS]; /* read and not yet taken */
    size_t at, n;
    wchar_t half; /* the first unit of a pair whose second has not been read; 0: none */
} typed;

size_t os_stdin_lines(char *text, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (text[i] != '\r' || i + 1 == n || text[i + 1] != '\n') text[kept++] = text[i];
    return kept;
}

static void take_units(const wchar_t *units, size_t n) {
    int n_bytes = WideCharToMultiByte(CP_UTF8, 0, units, (int)n, typed.text, sizeof typed.text,
                                      NULL, NULL);
    typed.at = 0;
    typed.n = os_stdin_lines(typed.text, (size_t)n_bytes);
}

static void read_line(HANDLE console) {
    wchar_t units[LINE_UNITS];
    DWORD n = 0, n_half = typed.half ? 1 : 0;
    units[0] = typed.half;
    typed.half = 0;
    if (!ReadConsoleW(console, units + n_half, LINE_UNITS - 1, &n, NULL) || n == 0) return;
    n += n_half;
    enum { CTRL_Z = 26 };
    if (units[0] == CTRL_Z) return;
    if (IS_HIGH_SURROGATE(units[n - 1])) typed.half = units[--n];
    if (n > 0) take_units(units, n);
}

size_t windows_console_read(HANDLE console, char *to, size_t n) {
    if (typed.at == typed.n) {
        typed.at = typed.n = 0;
        do {
            read_line(console);
        } while (typed.n == 0 && typed.half);
    }
    size_t taken = typed.n - typed.at < n ? typed.n - typed.at : n;
    memcpy(to, typed.text + typed.at, taken);
    typed.at += taken;
    return taken;
}

int os_stdin_get(void) {
    HANDLE h = GetStdHandle(STD_INPUT_HANDLE);
    char byte;
    if (!windows_is_console(h)) return getc(stdin);
    return windows_console_read(h, &byte, 1) ? (unsigned char)byte : EOF;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static DWORD mode_before_keys;
static struct {
    int key;
    unsigned left; /* one record may hold several events of a key that is held down */
} repeated;

bool os_keys_begin(void) {
    HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
    const DWORD lines = ENABLE_PROCESSED_INPUT | ENABLE_LINE_INPUT | ENABLE_ECHO_INPUT;
    return GetConsoleMode(console, &mode_before_keys) &&
           SetConsoleMode(console, mode_before_keys & ~lines);
}

void os_keys_end(void) {
    (void)SetConsoleMode(GetStdHandle(STD_INPUT_HANDLE), mode_before_keys);
}

/* The key of an event; 0: no key, half of a pair, or one that nothing uses. */
static int key_of(const KEY_EVENT_RECORD *k) {
    static const struct {
        WORD code;
        int key, with_ctrl;
    } keys[] = {{VK_LEFT, OS_KEY_LEFT, OS_KEY_WORD_LEFT},
                {VK_RIGHT, OS_KEY_RIGHT, OS_KEY_WORD_RIGHT},
                {VK_UP, OS_KEY_UP, 0},
                {VK_DOWN, OS_KEY_DOWN, 0},
                {VK_HOME, OS_KEY_HOME, 0},
                {VK_END, OS_KEY_END, 0},
                {VK_DELETE, OS_KEY_DELETE, 0}};
    const wchar_t unit = k->uChar.UnicodeChar;
    /* Releasing Alt ends a character that was typed by its number. */
    if (!k->bKeyDown && !(k->wVirtualKeyCode == VK_MENU && unit)) return 0;
    if (IS_HIGH_SURROGATE(unit)) {
        typed.half = unit;
        return 0;
    }
    if (IS_LOW_SURROGATE(unit)) {
        int code = 0x10000 + ((typed.half - 0xd800) << 10) + (unit - 0xdc00);
        bool is_pair = typed.half != 0;
        typed.half = 0;
        return is_pair ? code : 0;
    }
    if (unit) return unit;
    bool ctrl = k->dwControlKeyState & (LEFT_CTRL_PRESSED | RIGHT_CTRL_PRESSED);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].code == k->wVirtualKeyCode) return ctrl ? keys[i].with_ctrl : keys[i].key;
    return 0;
}

int os_key_read(void) {
    HANDLE console = GetStdHandle(STD_INPUT_HANDLE);
    while (repeated.left == 0) {
        INPUT_RECORD event;
        DWORD n;
        if (!ReadConsoleInputW(console, &event, 1, &n) || n == 0) return -1;
        if (event.EventType != KEY_EVENT) continue;
        repeated.key = key_of(&event.Event.KeyEvent);
        repeated.left = repeated.key ? event.Event.KeyEvent.wRepeatCount : 0;
    }
    repeated.left--;
    return repeated.key;
}

/* Removes events that are no typed characters, such as mouse movements. */
static bool has_key(HANDLE console) {
    for (;;) {
        INPUT_RECORD event;
        DWORD n;
        if (!PeekConsoleInputW(console, &event, 1, &n) || n == 0) return false;
        if (event.EventType == KEY_EVENT && event.Event.KeyEvent.bKeyDown &&
            event.Event.KeyEvent.uChar.UnicodeChar)
            return true;
        (void)ReadConsoleInputW(console, &event, 1, &n);
    }
}

static bool has_bytes(HANDLE h) {
    DWORD n = 0;
    if (windows_is_console(h)) return typed.at < typed.n || has_key(h);
    if (GetFileType(h) != FILE_TYPE_PIPE) return true; /* a file never waits */
    return PeekNamedPipe(h, NULL, 0, NULL, &n, NULL) && n > 0;
}

bool os_stdin_has_input(double seconds) {
    const DWORD step = 5; /* ms; pipes have no event to wait for */
    HANDLE h = GetStdHandle(STD_INPUT_HANDLE);
    double end = clock_seconds() + seconds;
    while (!has_bytes(h)) {
        if (clock_seconds() >= end) return false;
        Sleep(step);
    }
    return true;
}

/* ---- standard streams ------------------------------------------------------------------------ */

/* An empty write fails when the pipe's other end is closed. */
bool os_stdout_is_broken(void) {
    HANDLE h = GetStdHandle(STD_OUTPUT_HANDLE);
    DWORD n;
    return GetFileType(h) == FILE_TYPE_PIPE && !WriteFile(h, "", 0, &n, NULL) &&
           (GetLastError() == ERROR_NO_DATA || GetLastError() == ERROR_BROKEN_PIPE);
}

/* What the console had before. */
static struct {
    UINT output_page;
    HANDLE screen;
    DWORD mode;
    atomic_bool changed;
} before;

void windows_console_restore(void) {
    if (!atomic_exchange(&before.changed, false)) return;
    if (before.output_page) SetConsoleOutputCP(before.output_page);
    if (before.screen) SetConsoleMode(before.screen, before.mode);
}

/* Both output streams lead to the same console, so the first that does is enough. */
static void prepare_console(void) {
    static const DWORD outputs[] = {STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    for (int i = 0; i < 2 && !before.screen; i++) {
        HANDLE h = GetStdHandle(outputs[i]);
        if (!GetConsoleMode(h, &before.mode)) continue;
        before.screen = h;
        (void)SetConsoleMode(h, before.mode | ENABLE_PROCESSED_OUTPUT |
                                    ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
    if (!before.screen) return;
    before.output_page = GetConsoleOutputCP();
    (void)SetConsoleOutputCP(CP_UTF8);
    atomic_store(&before.changed, true);
    (void)atexit(windows_console_restore);
}

/* Opens the null device for a closed stream, for reading where the stream writes, so that its use
 * fails. */
static bool open_stream(int fd) {
    static const DWORD names[] = {STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE};
    static const int modes[] = {_O_WRONLY, _O_RDONLY, _O_RDONLY};
    HANDLE h = GetStdHandle(names[fd]);
    if (h && h != INVALID_HANDLE_VALUE && _get_osfhandle(fd) >= 0) return true;
    int opened = _open("NUL", modes[fd]);
    if (opened < 0) return false;
    bool done = opened == fd || _dup2(opened, fd) == 0;
    if (opened != fd) _close(opened);
    return done && SetStdHandle(names[fd], (HANDLE)_get_osfhandle(fd));
}

/* Bytes of output are the same as on other systems: lines end with LF. */
bool os_standard_streams_open(void) {
    for (int fd = 0; fd < 3; fd++)
        if (!open_stream(fd)) return false;
    (void)_setmode(_fileno(stdout), _O_BINARY);
    (void)_setmode(_fileno(stderr), _O_BINARY);
    /* Without a buffer, the C library writes single bytes to a console and so splits characters. */
    if (os_is_terminal(stdout)) (void)setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
    prepare_console();
    return true;
}

/* Programs that share a console are counted: a shell is one of them. */
bool os_terminal_closes(void) {
    DWORD processes[2];
    return windows_is_console(GetStdHandle(STD_INPUT_HANDLE)) &&
           GetConsoleProcessList(processes, 2) == 1;
}

int os_open_address(const char *address) {
    wchar_t text[1024];
    if (!MultiByteToWideChar(CP_UTF8, 0, address, -1, text, 1024)) return ENAMETOOLONG;
    INT_PTR result = (INT_PTR)ShellExecuteW(NULL, L"open", text, NULL, NULL, SW_SHOWNORMAL);
    return result > 32 ? 0 : windows_errno((DWORD)result); /* smaller numbers are errors */
}

void os_stream_lock(FILE *stream) {
    _lock_file(stream);
}

void os_stream_unlock(FILE *stream) {
    _unlock_file(stream);
}
