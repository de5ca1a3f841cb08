#!/usr/bin/env python3
"""Writes what the bindings repeat of the C headers: constants, structs, functions.

    bindings/generate.py            rewrites the generated sections
    bindings/generate.py --check    fails if a section differs from the headers
    bindings/generate.py --layout   prints sizes, offsets and values as the C compiler has them (JSON)

The C preprocessor ($CC, default cc) expands the headers, this script reads the declarations, and a
small C program, compiled with the headers, prints values of constants and the layout of structs. It
also assigns every function to a pointer of the type that was read, so that a declaration that is
read wrongly does not compile. Python 3.8 or later."""
import json
import keyword
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = ["powerinfer.h", "powerinfer_chat.h", "powerinfer_embed.h", "powerinfer_generation.h",
           "powerinfer_speculate.h", "powerinfer_tools.h"]  # these include the others
INCLUDES = ["-I" + os.path.join(TOP, "include"), "-I" + os.path.join(TOP, "src", "base")]
CC = os.environ.get("CC", "cc")
BEGIN = "---- generated from include/*.h by bindings/generate.py ----"
END = "---- end of the generated section ----"

SCALARS = {"bool": "c_bool", "int": "c_int", "int32_t": "c_int32", "uint32_t": "c_uint32",
           "int64_t": "c_int64", "uint64_t": "c_uint64", "size_t": "c_size_t",
           "float": "c_float", "double": "c_double", "char": "c_char"}
# Texts with a length and without a final NUL: a pointer, which the bindings read with the length.
UNTERMINATED = {("pi_released", "text"), ("pi_piece", "text")}
# Structs that callers fill; the others are results. pi_error and pi_released have own code.
FILLED = {"pi_input", "pi_metadata_override", "pi_adapter", "pi_stop_text", "pi_logit_bias",
          "pi_grammar_schema", "pi_tensor_type", "pi_embed_text", "pi_session_range", "pi_draft"}
OWN_CODE = {"pi_error", "pi_released"}
CALLBACKS = {"pi_progress": "Progress", "pi_piece": "Piece", "pi_message": "Message"}


class Type:
    """A C type: `base`, `pointers` deep; `const`: the base is; dims: of an array."""

    def __init__(self, base, pointers=0, const=False, dims=()):
        self.base, self.pointers, self.const, self.dims = base, pointers, const, list(dims)


# ---- reading the headers -------------------------------------------------------------------------

def expanded():
    """The declarations of the public headers after the preprocessor."""
    source = "".join('#include "%s"\n' % h for h in HEADERS)
    run = [CC, "-std=c11", "-E", "-xc"] + INCLUDES + ["-"]
    text = subprocess.run(run, input=source, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines, ours = [], False
    for line in text.splitlines():
        marker = re.match(r'# \d+ "([^"]*)"', line)
        if marker:
            ours = os.path.basename(marker.group(1)).startswith("powerinfer")
        elif ours:
            lines.append(line)
    text = re.sub(r'__attribute__\(\(visibility\("default"\)\)\)\s*', "", "\n".join(lines))
    return re.sub(r"\s+", " ", text.replace("_Bool", "bool"))


def macros():
    """Names of the public constants that are macros, in the order of the headers."""
    names = []
    folder = os.path.join(TOP, "include")
    paths = [os.path.join(folder, n) for n in sorted(os.listdir(folder)) if n.endswith(".h")]
    for path in paths + [os.path.join(TOP, "src", "base", "powerinfer_status.h")]:
        with open(path, encoding="utf-8") as f:
            names += re.findall(r"^#define (PI_[A-Z0-9_]+)[ \t]+[^\s\\]", f.read(), re.M)
    return [n for n in dict.fromkeys(names) if n != "PI_API"]


def split(text, at=","):
    """Splits at `at`, outside of parentheses."""
    parts, depth, part = [], 0, ""
    for c in text:
        depth += (c == "(") - (c == ")")
        if c == at and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [p for p in parts + [part.strip()] if p]


def read_type(words):
    """Type and rest of a declaration: 'const struct tm *now' -> (Type, ' *now')."""
    m = re.match(r"(const )?(?:struct |enum )?(\w+)(.*)$", words.strip())
    return Type(m.group(2), 0, bool(m.group(1))), m.group(3)


def read_declarator(base, text):
    """'*const *name[8]' -> (name, Type)."""
    m = re.match(r"([*\s]*(?:const[*\s]+)*)(\w*)((?:\[[^\]]*\])*)$", text.strip())
    if not m:
        sys.exit("generate: cannot read the declarator '%s'" % text)
    dims = re.findall(r"\[([^\]]*)\]", m.group(3))
    return m.group(2), Type(base.base, m.group(1).count("*"), base.const, dims)


class Api:
    def __init__(self):
        self.enums, self.structs, self.callbacks, self.functions = {}, {}, {}, {}
        self.opaque, self.names = [], []
        text = expanded()
        text = re.sub(r'extern "C" \{', "", text)
        for item in re.findall(r"(?:[^;{}]|\{[^{}]*\})+;", text):
            self.item(item.strip().rstrip(";").strip())
        self.names += macros()
        structs = set(self.structs)
        self.opaque = [n for n in self.opaque if n not in structs]
        self.layout = self.ask_compiler()
        self.values = self.layout["constants"]
        for struct in self.structs.values():
            for t in struct.values():
                t.dims = [eval(d, {}, dict(self.values)) for d in t.dims]  # "2 * PI_MAX"

    def item(self, text):
        m = re.match(r"(?:typedef )?enum\s*(\w*)\s*\{(.*)\}\s*(\w*)$", text)
        if m:
            names = [re.match(r"\w+", c).group(0) for c in split(m.group(2))]
            self.names += names
            if m.group(1):
                self.enums[m.group(1)] = names
            return
        m = re.match(r"typedef struct (\w+) \{(.*)\} \w+$", text)
        if m:
            self.structs[m.group(1)] = self.fields(m.group(1), m.group(2))
            return
        m = re.match(r"typedef struct (\w+) (\w+)$", text)
        if m:
            self.opaque.append(m.group(1))
            return
        if re.match(r"struct \w+$", text):
            return
        m = re.match(r"typedef (.+?)\(\*(\w+)\)\((.*)\)$", text)
        if m:
            self.callbacks[m.group(2)] = self.signature(m.group(1), m.group(3))
            return
        m = re.match(r"(.+?)(pi_\w+)\((.*)\)$", text)
        if not m:
            sys.exit("generate: cannot read '%s'" % text)
        self.functions[m.group(2)] = self.signature(m.group(1), m.group(3))

    def fields(self, struct, text):
        fields = {}
        for line in split(text, ";"):
            m = re.match(r"(.+?)\(\*(\w+)\)\((.*)\)$", line)
            if m:  # a pointer to a function without a typedef: named as struct and field
                name = "%s_%s" % (struct, m.group(2))
                self.callbacks[name] = self.signature(m.group(1), m.group(3))
                fields[m.group(2)] = Type(name)
                continue
            base, rest = read_type(line)
            for declarator in split(rest):
                name, t = read_declarator(base, declarator)
                fields[name] = t
        return fields

    def signature(self, result, parameters):
        base, rest = read_type(result)
        result = read_declarator(base, rest)[1]
        read = []
        for p in split(parameters):
            base, rest = read_type(p)
            name, t = read_declarator(base, rest)
            if t.base != "void" or t.pointers:
                read.append((name, t))
        return result, read

    def ask_compiler(self):
        """Values, sizes and offsets, printed by a program that is compiled with the headers."""
        lines = ['#include "%s"' % h for h in HEADERS]
        for name, (result, parameters) in self.functions.items():
            lines.append("%s (*const check_%s)(%s) = %s;" % (
                c_type(result), name, ", ".join(c_type(t) for _, t in parameters) or "void", name))
        lines += ["#define NUMBER(x) printf((x) < 0 ? \"\\\"%s\\\": %lld\" : \"\\\"%s\\\": %llu\", "
                  "#x, (unsigned long long)(x))", "int main(void) {"]
        out = []
        for name in self.names:
            text = name == "PI_CHAT_TEMPLATE_PLAIN"
            out.append('printf("\\"%s\\": \\"%%s\\"", %s);' % (name, name) if text
                       else "NUMBER(%s);" % name)
        lines += ['printf("{\\"constants\\": {");', '\nprintf(", ");\n'.join(out)]
        out = []
        for name, fields in list(self.structs.items()) + [("struct tm", {})]:
            places = ['printf("\\"%s\\": [%%zu, %%zu]", offsetof(%s, %s), sizeof((%s *)0)->%s);'
                      % (f, name, f, name, f) for f in fields]
            out.append('printf("\\"%s\\": {\\"size\\": %%zu, \\"fields\\": {", sizeof(%s));\n'
                       % (name, name) + '\nprintf(", ");\n'.join(places) + '\nprintf("}}");')
        lines += ['printf("}, \\"structs\\": {");', '\nprintf(", ");\n'.join(out),
                  'printf("}}\\n");', "return 0;", "}"]
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            with open(source, "w", encoding="utf-8") as f:
                f.write("\n".join(lines))
            with open(os.path.join(folder, "none.c"), "w", encoding="utf-8") as f:
                f.write("\n".join("void %s(void); void %s(void) {}" % (n, n)
                                  for n in self.functions))
            subprocess.run([CC, "-std=c11", "-Werror=incompatible-pointer-types", "-w"] + INCLUDES
                           + [source, os.path.join(folder, "none.c"), "-o", program], check=True)
            printed = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout
        return json.loads(printed)


def c_type(t):
    known = "struct tm" if t.base == "tm" else t.base
    return ("const " if t.const else "") + known + " " + "*" * t.pointers


# ---- Python --------------------------------------------------------------------------------------

def fill(head, parts, tail, indent):
    """head + parts, separated by ", " + tail, wrapped at 100 columns."""
    lines, line = [], head
    for i, part in enumerate(parts):
        part += "," if i + 1 < len(parts) else tail
        if len(line) + 1 + len(part) > 100 and line != head:
            lines.append(line.rstrip())
            line = " " * indent
        line += part if line == head or line.isspace() else " " + part
    return "\n".join(lines + [line.rstrip()])


def camel(name):
    return "".join(w.capitalize() for w in name[3:].split("_"))


def counted(fields, name):
    """The field with the number of elements of a pointer or array, or None."""
    for count in ("n_" + name, "n_bytes" if name == "text" else ""):
        if count in fields:
            return count
    return None


class Python:
    def __init__(self, api):
        self.api = api

    def ctype(self, t, where=None):
        if where in UNTERMINATED:
            return "c_void_p"
        known = self.api
        base = SCALARS.get(t.base) or ("c_int" if t.base in known.enums else t.base)
        pointers = t.pointers
        if t.base in ("void", "FILE") and pointers:
            base, pointers = "c_void_p", pointers - 1
        elif t.base == "char" and t.const and pointers:
            base, pointers = "c_char_p", pointers - 1
        for _ in range(pointers):
            base = "POINTER(%s)" % base
        for dim in reversed(t.dims):
            base = "%s * %d" % (base, dim)
        return "None" if base == "void" else base

    def annotation(self, t, result):
        """The Python type of a field of an options dictionary or of a result."""
        known = self.api
        if t.base in known.callbacks:
            return CALLBACKS.get(t.base, "Callable[..., Any]")
        if t.base == "char" and t.pointers + len(t.dims) == 1:
            return "str" if result and t.dims else "Optional[str]" if result else "Text"
        if t.base == "char":
            return "Sequence[Text]"
        if t.base == "void":
            return "bytes"
        if t.base == "pi_error":
            return "Optional[Error]"
        base = {"bool": "bool", "float": "float", "double": "float"}.get(t.base, "int")
        if t.base in known.enums:
            base = t.base if result else "int"
        elif t.base in known.structs:
            base = "Union[StopText, Text]" if t.base == "pi_stop_text" else camel(t.base)
        elif t.base in known.opaque or t.base == "tm":
            base = "Time" if t.base == "tm" else camel(t.base)
            return "Sequence[%s]" % base if t.pointers > 1 else base
        if t.pointers or t.dims:
            return "%s[%s]" % ("List" if result else "Sequence", base)
        return base

    def options_class(self, name, fields):
        lines = ["class %s(TypedDict, total=False):" % camel(name)]
        counts = {counted(fields, f) for f, t in fields.items() if t.pointers}
        for f, t in fields.items():
            if f not in counts and not f.endswith("user"):
                nested = t.base in self.api.structs and t.pointers == 1 and not counted(fields, f)
                kind = camel(t.base) if nested else self.annotation(t, False)
                lines.append('    %s: "%s"' % (f, kind))
        return "\n".join(lines)

    def result_class(self, name, fields):
        lines = ["@dataclass(frozen=True)", "class %s:" % camel(name)]
        for f, t in fields.items():
            name = f + "_" * keyword.iskeyword(f)
            lines.append('    %s: "%s"' % (name, self.annotation(t, True)))
        return "\n".join(lines)

    def section(self):
        api, out = self.api, []
        in_enum = {n: e for e, names in api.enums.items() for n in names}
        for e, names in api.enums.items():
            out.append("\n\nclass %s(IntEnum):\n" % e
                       + "\n".join("    %s = %d" % (n, api.values[n]) for n in names))
        out.append("\n")
        for n in api.names:
            value = "%s.%s" % (in_enum[n], n) if n in in_enum else json.dumps(api.values[n])
            out.append("%s = %s" % (n, value))
        out.append("")
        for n in api.opaque:
            out.append('\nclass %s(Structure):\n    """Opaque."""\n' % n)
        out.append("\nclass tm(Structure):\n" + fill(
            "    _fields_ = [", ['("%s", c_int)' % f for f in TM] +
            ['("tm_gmtoff", c_long)', '("tm_zone", c_char_p)'], "]", 16))
        pending = dict(api.callbacks)
        for name, fields in api.structs.items():
            for t in fields.values():
                self.callback(t.base, pending, out)
            self.structure(name, fields, out)
        for name in list(pending):
            self.callback(name, pending, out)
        for name, fields in api.structs.items():
            if name in OWN_CODE:
                continue
            filled = name in FILLED or name.endswith("_options")
            out.append("\n\n" + (self.options_class if filled else self.result_class)(name, fields))
        results = [n for n in api.structs if n not in OWN_CODE and n not in FILLED
                   and not n.endswith("_options")]
        out.append("\n\n" + fill("_RESULTS: Dict[Any, Any] = {",
                                 ["%s: %s" % (n, camel(n)) for n in results], "}", 4))
        defaults = {r.base: f for f, (r, _) in api.functions.items()
                    if f.endswith("_default_options")}
        out.append("\n\n_library = _load(\"%d.%d\" % (PI_VERSION_MAJOR, PI_VERSION_MINOR))")
        out.append("\n\ndef _declare(name: str, result: Any, *parameters: Any) -> Any:\n"
                   "    function = getattr(_library, name)\n"
                   "    function.restype, function.argtypes = result, parameters\n"
                   "    return function\n\n")
        for name, (result, parameters) in api.functions.items():
            types = [self.ctype(t) for _, t in parameters]
            out.append(fill("%s = _declare(" % name,
                            ['"%s"' % name, self.ctype(result)] + types, ")", 4))
        out.append("\n" + fill("_DEFAULTS: Dict[Any, Any] = {",
                               ["%s: %s" % row for row in defaults.items()], "}", 4))
        return "\n".join(out) + "\n"

    def callback(self, name, pending, out):
        if name not in pending:
            return
        result, parameters = pending.pop(name)
        for _, t in parameters:  # structs of the parameters come first
            if t.base in self.api.structs and t.base not in self.written:
                self.structure(t.base, self.api.structs[t.base], out)
        types = [self.ctype(t, (name, p)) for p, t in parameters]
        out.append("\n" + fill("%s = CFUNCTYPE(" % name, [self.ctype(result)] + types, ")", 4))

    written = set()

    def structure(self, name, fields, out):
        if name in self.written:
            return
        self.written.add(name)
        rows = ['("%s", %s)' % (f, self.ctype(t, (name, f))) for f, t in fields.items()]
        lines = [fill("    _fields_ = [", rows, "]", 16)]
        enums = ['"%s": %s' % (f, t.base) for f, t in fields.items()
                 if t.base in self.api.enums and not t.pointers]
        counts = ['"%s": "%s"' % (f, counted(fields, f)) for f, t in fields.items()
                  if t.pointers and counted(fields, f)]
        if enums:
            lines.append(fill("    _enums_ = {", enums, "}", 14))
        if counts:
            lines.append(fill("    _counts_ = {", counts, "}", 15))
        out.append("\n\nclass %s(_Struct):\n" % name + "\n".join(lines))


TM = ["tm_sec", "tm_min", "tm_hour", "tm_mday", "tm_mon", "tm_year", "tm_wday", "tm_yday",
      "tm_isdst"]


# ---- Node ----------------------------------------------------------------------------------------

class Node:
    def __init__(self, api):
        self.api = api

    def name(self, t, where=None, followed=False):
        """The koffi type. A text that a length follows is given as bytes."""
        if where in UNTERMINATED:
            return "const void *"
        base = "int" if t.base in self.api.enums else "void" if t.base == "FILE" else t.base
        if t.base in self.api.callbacks:
            return t.base + " *"
        if t.base == "char" and t.pointers == 1:
            base = "char" if t.const and not followed else "uint8_t"
        dims = "".join("[%d]" % d for d in t.dims)
        return ("const " if t.const else "") + base + (" " + "*" * t.pointers if t.pointers else "") + dims

    def parameter(self, function, name, t, following):
        followed = following is not None and following[1].base == "size_t" \
            and not following[1].pointers
        text = self.name(t, (function, name), followed)
        if not t.pointers or t.const or t.base in ("FILE", "tm"):
            return text
        if t.base in self.api.opaque and t.pointers == 1:
            return text
        if (t.base == "char" and t.pointers == 1 and not followed):
            return "void *"  # of pi_text_free
        if t.base == "void":
            return "_Out_ uint8_t *"
        inout = (function, name) in (("pi_normalize", "vector"), ("pi_speculator_draft", "drafts"))
        if t.base == "char":
            text = "void **" if t.pointers == 2 else text
        return ("_Inout_ " if inout else "_Out_ ") + text

    def field(self, struct, name, t, fields):
        count = counted(fields, name) if t.pointers else None
        return self.name(t, (struct, name), count is not None)

    def constants(self):
        out = ["// Constants of the C headers; beyond 2^53 they are BigInts. Written by",
               "// bindings/generate.py."]
        for n in self.api.names:
            value = self.api.values[n]
            big = isinstance(value, int) and abs(value) > 2 ** 53
            out.append("export const %s = %s%s;" % (n, json.dumps(value), "n" if big else ""))
        return "\n".join(out) + "\n"

    def module(self):
        api = self.api
        out = ["// Structs, callbacks and functions of the C headers, for koffi; written by",
               "// bindings/generate.py.", "import koffi from 'koffi';", "",
               "for (const name of ["]
        out += ["    '%s'," % n for n in api.opaque]
        out += ["]) koffi.opaque(name);", "koffi.struct('tm', {"]
        out += ["    %s: 'int'," % f for f in TM]
        out += ["    tm_gmtoff: 'long',", "    tm_zone: 'str',", "});", "",
                "/* By name: koffi type, types of the fields, and for pointers the fields with their",
                "   number of elements. */",
                "export const structs = {};", "export const callbacks = {};",
                "const struct = (name, fields, counts = {}) => {",
                "    structs[name] = { type: koffi.struct(name, fields), fields, counts };", "};",
                "const callback = (name, prototype) => {",
                "    callbacks[name] = { type: koffi.pointer(koffi.proto(prototype)), prototype };",
                "};", ""]
        self.out, self.pending = out, dict(api.callbacks)
        self.written = set()
        for name in api.structs:
            self.structure(name)
        for name in list(self.pending):
            self.callback(name)
        out += ["", "/* Prototypes of the functions. */", "export const functions = {"]
        for name, (result, parameters) in api.functions.items():
            texts = []
            for i, (p, t) in enumerate(parameters):
                following = parameters[i + 1] if i + 1 < len(parameters) else None
                texts.append("%s %s" % (self.parameter(name, p, t, following), p))
            out.append("    %s:\n        '%s %s(%s)'," % (
                name, self.name(result), name, ", ".join(texts)))
        return "\n".join(out + ["};"]) + "\n"

    def callback(self, name):
        if name not in self.pending:
            return
        result, parameters = self.pending.pop(name)
        for _, t in parameters:
            if t.base in self.api.structs:
                self.structure(t.base)
        texts = ["%s %s" % (self.name(t, (name, p)), p) for p, t in parameters]
        self.out.append("callback('%s', '%s %s(%s)');" % (
            name, self.name(result), name, ", ".join(texts)))

    def structure(self, name):
        if name in self.written:
            return
        self.written.add(name)
        fields = self.api.structs[name]
        for t in fields.values():
            self.callback(t.base)
            if t.base in self.api.structs:
                self.structure(t.base)
        self.out.append("struct('%s', {" % name)
        self.out += ["    %s: '%s'," % (f, self.field(name, f, t, fields))
                     for f, t in fields.items()]
        counted_by = ["%s: '%s'" % (f, counted(fields, f)) for f, t in fields.items()
                      if t.pointers and counted(fields, f)]
        self.out.append("}" + (", { " + ", ".join(counted_by) + " }" if counted_by else "") + ");")

    # index.d.ts

    def annotation(self, t, result):
        known = self.api
        if t.base in known.callbacks:
            return CALLBACKS.get(t.base, "(...args: any[]) => void")
        if t.base == "char" and t.pointers + len(t.dims) == 1:
            return "string" if t.dims else "string | null" if result else "Text | null"
        if t.base == "char":
            return "Text[]"
        if t.base == "void":
            return "Uint8Array"
        if t.base == "pi_error":
            return "PowerInferError | null"
        base = {"bool": "boolean", "uint64_t": "Integer", "int64_t": "Integer"}.get(t.base, "number")
        if t.base in known.structs:
            base = "(StopText | string)" if t.base == "pi_stop_text" else camel(t.base)
        elif t.base in known.opaque or t.base == "tm":
            if t.pointers > 1:
                return camel(t.base) + "[]"
            return "Date" if t.base == "tm" else camel(t.base) + " | null"
        if t.pointers or t.dims:
            if base == "number":
                return "Numbers" if not result else "number[]"
            return base + "[]"
        return base

    def types(self):
        api, out = self.api, []
        for n in api.names:
            value = api.values[n]
            big = isinstance(value, int) and abs(value) > 2 ** 53
            out.append("export const %s: %s;" % (
                n, "bigint" if big else "string" if isinstance(value, str) else value))
        for name, fields in api.structs.items():
            if name in OWN_CODE:
                continue
            filled = name in FILLED or name.endswith("_options")
            out += ["", "export interface %s {" % camel(name)]
            counts = {counted(fields, f) for f, t in fields.items() if t.pointers} if filled else ()
            for f, t in fields.items():
                if f in counts or f.endswith("user"):
                    continue
                single = t.base in api.structs and t.pointers == 1 and not counted(fields, f)
                kind = camel(t.base) if single else self.annotation(t, not filled)
                out.append("    %s%s: %s;" % (f, "?" if filled else "", kind))
            out.append("}")
        return "\n".join(out) + "\n"


# ---- files ---------------------------------------------------------------------------------------

def replaced(path, mark, section):
    """The file with its generated section replaced; without a mark, the whole file."""
    if not mark:
        return section
    with open(path, encoding="utf-8") as f:
        text = f.read()
    begin, end = "%s %s\n" % (mark, BEGIN), "%s %s\n" % (mark, END)
    if begin not in text or end not in text:
        sys.exit("generate: no generated section: %s" % path)
    return text.split(begin)[0] + begin + section + end + text.split(end)[1]


def main():
    api = Api()
    if sys.argv[1:] == ["--layout"]:
        print(json.dumps(api.layout))
        return
    node = Node(api)
    differ = []
    for path, mark, section in (("python/powerinfer.py", "#", Python(api).section()),
                                ("node/constants.js", "", node.constants()),
                                ("node/abi.js", "", node.module()),
                                ("node/index.d.ts", "//", node.types())):
        full = os.path.join(TOP, "bindings", path)
        wanted = replaced(full, mark, section)
        current = ""
        if os.path.exists(full):
            with open(full, encoding="utf-8") as f:
                current = f.read()
        if wanted == current:
            continue
        differ.append(path)
        if "--check" not in sys.argv:
            with open(full, "w", encoding="utf-8") as f:
                f.write(wanted)
    if differ and "--check" in sys.argv:
        sys.exit("generate: the headers changed: bindings/%s: run bindings/generate.py"
                 % ", bindings/".join(differ))


if __name__ == "__main__":
    main()
