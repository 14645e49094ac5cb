# ---- The environment is again what it was. ----
for _ka_name, _ka_value in _ka_before.items():
    if _ka_value is None:
        _ka_os.environ.pop(_ka_name, None)
    else:
        _ka_os.environ[_ka_name] = _ka_value
_ka_sys.argv = _ka_arguments
