"""What one connection may cost, and its answers in the order of its requests.

watch.py            ends connections that cost too much, in number and in time
head_limits.py      refuses heads that cost too much
ordered_answers.py  answers in the order of requests
held_send.py        a small send that waits for its flush
unsent_answers.py   what the client has not read
upgrade.py          a head that asks for another protocol
"""
