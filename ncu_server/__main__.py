"""`python -m ncu_server`: serve on stdio."""

from ncu_server.server import main

if __name__ == "__main__":
    main()
