"""mutate - makes bugs for tools/mutants: small changes to the C code of src/, chosen by a seed.

Six operators, each a mistake that a programmer makes:

    negated condition  `if (c)` -> `if (!(c))`, `==` -> `!=`, `&&` -> `||` and the other way round
    off by one         `<` -> `<=`, `>` -> `>=` and the other way round, `+ 1` and `- 1` left out
    dropped call       a statement that is one call is left out
    removed release    a dropped call that releases something (free, drop, close, unlock, ...)
    swapped argument   two neighbouring arguments of a call change places
    wrong constant     a number is one more, `true` is `false`, one error code is another

A lexer skips comments, strings, preprocessor lines, assertions, declarations and everything outside of function
bodies. A site is ranked by a hash of the seed, its file, its function and its text, not by its place: the same seed
chooses the same bugs as long as these lines are unchanged.
"""
import hashlib
import re

OPERATORS = ["negated condition", "off by one", "dropped call", "removed release", "swapped argument", "wrong constant"]

TOKEN = re.compile(r"""
    (?P<skip>/\*.*?\*/|//[^\n]*|\s+)
  | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<mark>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
""", re.X | re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.)*(?:\\\n(?:[^\n\\]|\\.)*)*", re.M | re.S)

# A bug in these would not change the behaviour of the program.
NOT_CODE = re.compile(r"FLI_ASS(ERT|UME)\w*|_?[Ss]tatic_assert|fli_prefetch\w*|fli_pause|FLI_UNREACHABLE|sizeof|alignas|_Alignas|__attribute__")
RELEASES = re.compile(r"(free|release|unref|drop|close|fini|destroy|give|given|unlock|abandon|undo|unpin|leave|clear|lua_pop|"
                      r"lua_settop|unlink|forget|cancel|stop)(_\w+)?$|(^|_)(free|drop|close|unlock)_")
SYMMETRIC = re.compile(r"(mem|str|strn|strcase)cmp|lua_rawequal|FLI_M(IN|AX)|fli_m(in|ax)\w*|pid_same|same_pid")
KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "do", "else", "case", "goto", "break", "continue", "default"}


class Site:
    """One possible bug: in `file`, the characters [start, end) become `text`."""

    def __init__(self, source, function, operator, start, end, text):
        self.file, self.function, self.operator = source.file, function, operator
        self.start, self.end, self.text = start, end, text
        first = source.text.rfind("\n", 0, start) + 1
        last = source.text.find("\n", end)
        self.line = source.text.count("\n", 0, start) + 1
        self.before = source.text[first:last]
        self.after = source.text[first:start] + text + source.text[end:last]
        self.again = 0  # number of equal sites before this one in the function

    def key(self):
        """Returns its identity, independent of its place in the file."""
        squeeze = lambda text: " ".join(text.split())
        return "\n".join([self.file, self.function, self.operator, squeeze(self.before), squeeze(self.after), str(self.again)])

    def rank(self, seed):
        return hashlib.sha256(f"{seed}\n{self.key()}".encode()).hexdigest()

    @property
    def name(self):
        tag = hashlib.sha256(self.key().encode()).hexdigest()[:6]
        return f"{self.file.removeprefix('src/')}:{self.function}:{tag}"

    @property
    def module(self):
        return self.file.split("/")[1]


class Source:
    def __init__(self, file, text):
        self.file, self.text = file, text
        blank = DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
        self.tokens = [(m.lastgroup, m.group(), m.start()) for m in TOKEN.finditer(blank) if m.lastgroup != "skip"]
        self.partner = {}
        open_at = []
        for i, (_, word, _) in enumerate(self.tokens):
            if word in "([{" and len(word) == 1:
                open_at.append(i)
            elif word in ")]}" and len(word) == 1 and open_at:
                self.partner[open_at.pop()] = i
        self.back = {close: opened for opened, close in self.partner.items()}
        self.sites = []

    def word(self, i):
        return self.tokens[i][1] if 0 <= i < len(self.tokens) else ""

    def at(self, i):
        return self.tokens[i][2]

    def end(self, i):
        return self.tokens[i][2] + len(self.tokens[i][1])

    def between(self, first, last):
        """Returns the text of the tokens first..last."""
        return self.text[self.at(first):self.end(last)]

    def functions(self):
        """(name, first token, last token) of every body."""
        i, count = 0, len(self.tokens)
        while i < count:
            if self.word(i) == "{" and i in self.partner:
                if self.word(i - 1) == ")":
                    yield self.word(self.back.get(i - 1, 0) - 1), i, self.partner[i]
                i = self.partner[i]
            i += 1

    def add(self, function, operator, first, last, text):
        site = Site(self, function, operator, self.at(first), self.end(last), text)
        self.sites.append(site)

    def find(self):
        for function, first, last in self.functions():
            i = first
            while i < last:
                i += 1
                if NOT_CODE.fullmatch(self.word(i)) and self.word(i + 1) == "(" and i + 1 in self.partner:
                    i = self.partner[i + 1]
                    continue
                self.look(function, i)
        seen = {}
        for site in self.sites:
            key = site.key()
            site.again = seen.get(key, 0)
            seen[key] = site.again + 1
        return [site for site in self.sites if " ".join(site.before.split()) != " ".join(site.after.split())]

    def look(self, function, i):
        kind, word, _ = self.tokens[i]
        if kind == "mark":
            self.look_mark(function, i, word)
        elif kind == "number":
            self.look_number(function, i, word)
        elif kind == "word":
            self.look_word(function, i, word)

    OTHER = {"==": "!=", "!=": "==", "&&": "||", "||": "&&"}
    NEXT_TO = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}

    def look_mark(self, function, i, word):
        if word in self.OTHER:
            self.add(function, "negated condition", i, i, self.OTHER[word])
        elif word in self.NEXT_TO:
            self.add(function, "off by one", i, i, self.NEXT_TO[word])
        elif word in "+-" and self.word(i + 1) == "1" and self.tokens[i - 1][0] in ("word", "number") or \
                word in "+-" and self.word(i + 1) == "1" and self.word(i - 1) in ")]":
            self.add(function, "off by one", i + 1, i + 1, "0")

    def look_number(self, function, i, word):
        before, after = self.word(i - 1), self.word(i + 1)
        whole = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", word)
        if whole is None or before in ("case", ".", "<<", ">>") or before in "+-" and word == "1" or after == ":":
            return
        if before == "[" and after == "]" and self.is_declared(i - 2):
            return
        value = int(whole.group(1), 16 if whole.group(1)[:2] in ("0x", "0X") else 10) + 1
        self.add(function, "wrong constant", i, i, (hex(value) if whole.group(1)[:2] in ("0x", "0X") else str(value)) + whole.group(2))

    def is_declared(self, i):
        """Returns True if the name at i follows a type, or another name that does."""
        if self.word(i - 1) == "," and self.word(i - 2) == "]":
            opened = self.back.get(i - 2, 0)
            return opened > 0 and self.is_declared(opened - 1)
        return self.tokens[i][0] == "word" and (self.tokens[i - 1][0] == "word" and self.word(i - 1) not in KEYWORDS or
                                                self.word(i - 1) == "*" and self.tokens[i - 2][0] == "word")

    def look_word(self, function, i, word):
        if word == "if" and self.word(i + 1) == "(" and i + 1 in self.partner:
            close = self.partner[i + 1]
            self.add(function, "negated condition", i + 1, close, f"(!{self.between(i + 1, close)})")
        elif word in ("true", "false"):
            self.add(function, "wrong constant", i, i, "false" if word == "true" else "true")
        elif re.fullmatch(r"FILCH_E[A-Z]+", word) and self.word(i - 1) in ("return", "=", ":", "?", ",", "("):
            self.add(function, "wrong constant", i, i, "FILCH_EINVAL" if word != "FILCH_EINVAL" else "FILCH_ENOMEM")
        elif self.word(i + 1) == "(" and word not in KEYWORDS and i + 1 in self.partner:
            self.look_call(function, i, word)

    def look_call(self, function, i, word):
        close = self.partner[i + 1]
        first = i
        if [self.word(k) for k in range(i - 3, i)] == ["(", "void", ")"]:
            first = i - 3
        before = self.word(first - 1)
        begins = before in (";", "{", "}", "else", "do") or before == ")" and \
            self.word(self.back.get(first - 1, 0) - 1) in ("if", "for", "while")
        if begins and self.word(close + 1) == ";" and not re.search(r"_lock(_\w+)?$|^va_", word):
            self.add(function, "removed release" if RELEASES.search(word) else "dropped call", first, close, "(void)0")
        if SYMMETRIC.fullmatch(word):
            return
        args, depth, begin = [], i + 2, i + 2
        while depth < close:
            if depth in self.partner:
                depth = self.partner[depth]
            if self.word(depth) == ",":
                args.append((begin, depth - 1))
                begin = depth + 1
            depth += 1
        args.append((begin, close - 1))
        for one, two in zip(args, args[1:]):
            left, right = self.between(*one), self.between(*two)
            if left != right:
                comma = self.text[self.end(one[1]):self.at(two[0])]
                self.add(function, "swapped argument", one[0], two[1], right + comma + left)


def sites(root, modules):
    """Every site in the files of these modules."""
    found = []
    for module in modules:
        for path in sorted((root / "src" / module).rglob("*.[ch]")):
            if not path.name.endswith("_test.c"):
                found += Source(str(path.relative_to(root)), path.read_text()).find()
    return found


def modules(root):
    """Every module and its size in lines, without tests. The engine of the simulator is a check and not part of the library."""
    sizes = {}
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir() and folder.name != "sim":
            files = [path for path in folder.rglob("*") if path.suffix in (".c", ".h", ".lua") and not path.name.endswith("_test.c")]
            sizes[folder.name] = sum(len(path.read_text().splitlines()) for path in files)
    return sizes


def shares(sizes, count):
    """Divides `count` among the modules in proportion to their sizes, at least one each (largest remainder method)."""
    total = sum(sizes.values())
    exact = {name: count * size / total for name, size in sizes.items()}
    share = {name: max(1, int(value)) for name, value in exact.items()}
    for name in sorted(exact, key=lambda name: int(exact[name]) - exact[name]):
        if sum(share.values()) >= count:
            break
        share[name] += 1
    return share


def in_turn(found, seed):
    """Returns the sites of one module in the order in which they are chosen: one site of each operator in turn."""
    lanes = {operator: [] for operator in OPERATORS}
    for site in sorted(found, key=lambda site: site.rank(seed)):
        lanes[site.operator].append(site)
    lanes = [lane for lane in lanes.values() if lane]
    order = []
    for i in range(max(map(len, lanes), default=0)):
        order += [lane[i] for lane in lanes if i < len(lane)]
    return order
