"""What is secret in a command line is hidden, however it is written, and what is not stays readable."""

from __future__ import annotations

import random
import shlex

import pytest

from ullage.command_lines import HIDDEN, public_command

SECRET = "s3cr3t/+Zz=="


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--token", SECRET],
        ["train", f"--hf-token={SECRET}"],
        ["train", f"-api_key={SECRET}"],
        ["train", "--password", f"{SECRET} with blanks {SECRET}"],
        ["env", f"AWS_SECRET_ACCESS_KEY={SECRET}", "python"],
        ["env", f"PASSWORD=blank {SECRET}", "python"],
        ["docker", "run", "-e", f"PGPASSWORD={SECRET}", f"--env=API_KEY={SECRET}"],
        ["curl", "-H", f"Authorization: Bearer {SECRET}"],
        ["curl", "-H", f"X-Api-Key: {SECRET}"],
        ["train", f'{{"lr": 1, "api_key": "{SECRET}"}}'],
        ["train", f'{{"lr":1,"clientSecret":"{SECRET}"}}'],
        ["train", "https://me:s3cr3t@host/x"],
        ["train", '--cmd="python a.py --token s3cr3t"'],
        ["train", "--dsn", "postgres://me:s3cr3t@db/x?sslmode=off"],
        ["train", "--url=https://host/x?sig=s3cr3t"],
        ["bash", "-c", f"HF_TOKEN={SECRET} python train.py --lr 1"],
        ["bash", "-c", f"export A=1; HF_TOKEN='{SECRET} b' python train.py"],
        ["bash", "-c", f"python train.py --token {SECRET} --lr 1"],
        ["bash", "-c", f"curl -H 'Authorization: Bearer {SECRET}' https://me:s3cr3t@host"],
        ["bash", "-c", f'bash -c "python a.py --token {SECRET}"'],
        [f"python train.py --token {SECRET} --lr 1"],
        [f"curl -H Authorization: Bearer {SECRET} x"],
        ["train", f"+wandb.api_key={SECRET}"],
        ["train", "--token", f"-{SECRET}"],
        ["train", f"--auth={SECRET}", f"--basic-auth={SECRET}", f"db.pass={SECRET}"],
        ["env", f"SSHPASS={SECRET}", "sshpass", "-e", "ssh", "host"],
        ["train", "--dbpass", SECRET, f"MYPASS={SECRET}", f"db.dbPass={SECRET}"],
        ["python", "-c", f'import os; os.environ["HF_TOKEN"]="{SECRET}"; import train'],
        ["python", "-c", f"os.environ['HF_TOKEN'] = '{SECRET}'"],
        ["python", "-c", f"import os; os.environ['HF_TOKEN'] = '{SECRET}'; import train"],
        ["train", f'{{"lr": 1, "api_key" : "{SECRET}"}}', "token", "=", SECRET],
        ["python", "-c", f'settings(api_keys={{"a": "{SECRET}"}})'],
    ],
)
def test_no_secret_is_shown(words: list[str]) -> None:
    shown = public_command(words)
    assert "s3cr3t" not in shown and HIDDEN in shown
    assert shown.split()[0].strip("'\"") == words[0].split()[0]


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--tokenizer", "gpt2", "--max-tokens", "4096", "--num-key-value-heads=8", "pad_token_id=0"],
        ["torchrun", "--nnodes=2", "--rdzv-endpoint=host:29500", "train.py", "trainer.lr=0.1", "data.path=/a:b"],
        ["python", "-c", "print('a = b'); x = {1: 2}"],
        ["bash", "-lc", "cd /x && exec python train.py --lr 1e-3"],
        ["curl", "https://host/x@y/z"],
        ["it's", "half a ' quote", '"'],
        ["--use-auth", "--verbose"],
        ["train", "--max-tokens", "64", "--new_tokens=8", "--author", "ann", "--preauth=no", "--passes", "3", "--token", "--lr"],
        ["python", "-c", "x = {'a' : 1}; y = key_of(x) ; z = 2"],
    ],
)
def test_what_is_not_secret_is_shown_as_it_is(words: list[str]) -> None:
    assert public_command(words) == " ".join(words)


def test_whatever_stands_around_it_a_named_secret_is_hidden() -> None:
    dice = random.Random(7)
    plain = [
        "python",
        "a.py",
        "--lr",
        "1",
        "x=1",
        "a:b",
        "--flag",
        "it's",
        'say "hi"',
        "",
        " ",
        "{",
        "https://h/x",
        "\u202e",
        "-",
        "--",
        "=",
        ":",
    ]
    for _ in range(3000):
        secret = dice.choice([["--api-key", "s3cr3t"], ["TOKEN=s3cr3t"], ["--password=s3cr3t"], ["http://u:s3cr3t@h/p"]])
        before, after = (dice.choices(plain, k=dice.randrange(6)) for _ in range(2))
        words = [*before, *secret, *after]
        assert "s3cr3t" not in public_command(words), words
        assert "s3cr3t" not in public_command(["bash", "-c", shlex.join(words)]), words


@pytest.mark.parametrize("piece", ["a", "=", ":", "'", '"', "' ", "a=", "a:/", "token ", "key=", "\"'", "://"])
def test_no_word_of_a_hostile_length_is_too_deep_or_takes_for_ever(piece: str) -> None:
    assert len(public_command(["x", piece * 100_000])) <= 2 * len(piece) * 100_000
