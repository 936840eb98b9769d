"""What a client receives.

raw_response.py     JSON in one write
problems.py         errors as problem documents; error_responses.py is how the raw paths refuse
allowed_methods.py  which methods a path takes
"""
