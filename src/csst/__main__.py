"""python -m csst is csst."""

from csst.cli import main

raise SystemExit(main())
