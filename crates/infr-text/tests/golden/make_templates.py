"""Writes templates.json: what Jinja2, set up as transformers does, renders for each template.

    python3 make_templates.py /path/to/peers/vocabs/templates

Each result is the SHA-256 of the text (16 digits), or "raise: MESSAGE" where the template itself
raises, or "error" where Python fails. A tool call's arguments are given as an object ("tools") and
as JSON text ("tools_text").
"""
import copy, datetime, hashlib, json, pathlib, sys
import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment

NOW = datetime.datetime(2026, 3, 7, 9, 5)
HERE = pathlib.Path(__file__).parent


class Raised(Exception):
    pass


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_body", [])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment(source):
    # The immutable sandbox of transformers refuses append and pop, which some templates call.
    mutating = any(m in source for m in (".append(", ".pop(", ".update("))
    kind = SandboxedEnvironment if mutating else ImmutableSandboxedEnvironment
    env = kind(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = lambda x: json.loads(x) if isinstance(x, str) else x
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


def render(source, conversation):
    try:
        template = environment(source).from_string(source)
        text = template.render(
            add_generation_prompt=True, bos_token="<s>", eos_token="</s>", **conversation
        )
        return text, hashlib.sha256(text.encode()).hexdigest()[:16]
    except Raised as e:
        return None, f"raise: {e}"
    except Exception as e:
        return repr(e), "error"


def conversations():
    given = json.loads((HERE / "conversations.json").read_text())
    text = copy.deepcopy(given["tools"])
    for message in text["messages"]:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(
                call["function"]["arguments"], ensure_ascii=False, separators=(",", ":"))
    return {**given, "tools_text": text}


def main(folder, dump=None):
    golden = {}
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_text()
        golden[path.stem] = {}
        for name, conversation in conversations().items():
            text, result = render(source, conversation)
            golden[path.stem][name] = result
            if dump:
                (pathlib.Path(dump) / f"{path.stem}.{name}.txt").write_text(f"{result}\n{text}")
    out = json.dumps(golden, indent=1, ensure_ascii=False) + "\n"
    (HERE / "templates.json").write_text(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
