"""The broker: accepts messages, hands them to the store, answers when they are as safe as asked.

    server.py       a broker: builds the core and its front door
    name_server.py  a name server without a broker
    process.py      what both run in: the socket, the event loop, uvicorn, signals
    advertised.py   where others reach them
    settings.py     the model of what `lakemq serve` takes; process_settings.py of what `lakemq nameserver`
                    takes too; setting_sources.py reads them from a file, the environment and the command
                    line, setting_fields.py lists them, setting_errors.py words refusals
    logs.py         lines for people or for machines
    version.py      the installed distribution's
    broker/         the core, which knows no protocol
    http/           the HTTP front door

The path of a message: http/messages/send.py -> broker/send_service.py -> the store -> broker/flush_wait.py.
"""
