.PHONY: up down check test bench screenshots clean
export PYTHON # which one makes .venv; unless said, that of the system

up: .venv/.installed ## install, start in the background, run a first job
	@scripts/up

down: ## stop the server; running jobs go on
	@if [ -x .venv/bin/helio ]; then .venv/bin/helio down; else echo "Heliostat is not installed here."; fi

check: .venv/.checked ## while working: lint, types and unit tests, in a few minutes
	@scripts/check

test: .venv/.tested ## everything CI checks
	@scripts/test

bench: .venv/.tested ## compare with other queues on this machine
	@bench/install.sh
	@.venv/bin/python -m bench

screenshots: .venv/.tested ## pictures of every page, into docs/screenshots
	@scripts/install-test-parts
	@.venv/bin/python scripts/screenshots.py

clean:
	rm -rf .venv helio

.venv/.installed: pyproject.toml
	@scripts/install
	@touch $@

.venv/.checked: pyproject.toml requirements/test.txt
	@scripts/install --check
	@touch .venv/.installed $@

.venv/.tested: .venv/.checked $(wildcard requirements/*.txt)
	@scripts/install --test
	@touch $@
