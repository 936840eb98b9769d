"""The broker: accepts messages, hands them to the store, answers when they are as safe as asked.

    server.py   the process: builds the core and its front doors, runs them, stops them
    settings.py the model of what `lakemq serve` takes; setting_sources.py reads it from a file, the
                environment and the command line, setting_fields.py lists it, setting_errors.py words refusals
    broker/     the core, which knows no protocol
    http/       the HTTP front door

The path of a message: http/messages/send.py -> broker/send_service.py -> the store -> broker/flush_wait.py.
"""
