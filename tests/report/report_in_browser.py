# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""report_in_browser.py SCREENSHOTS PAGE...: opens reports in Debian's chromium and checks them there.

At 3 widths, light and dark: a screenshot, no request, no script, no scrolling of the page to the side, and no violation
that axe-core finds. Needs the package axe-playwright-python and /usr/bin/chromium. Exit status 0: all as expected.
"""
import pathlib
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright


def main():
    shots = pathlib.Path(sys.argv[1])
    shots.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for number, name in enumerate(sys.argv[2:]):
            page_file = pathlib.Path(name).resolve()
            for scheme in ("light", "dark"):
                for width in (360, 768, 1280):
                    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
                    requests = []
                    page.on("request", lambda request, seen=requests: seen.append(request.url))
                    page.goto(page_file.as_uri())
                    page.screenshot(path=shots / f"{number}_{scheme}_{width}.png", full_page=True)
                    inner = page.evaluate("document.documentElement.scrollWidth")
                    scripts = page.evaluate("document.scripts.length")
                    found = Axe().run(page).response["violations"]
                    for violation in found:
                        print(f"FAILED: {name} {scheme} {width}: {violation['id']}: {violation['help']}: "
                              f"{violation['nodes'][0]['html'][:150]}")
                    for right, text in ((len(requests) == 1, f"requests {requests[1:]}"), (inner <= width, f"{inner} pixels wide"),
                                        (scripts == 0, f"{scripts} scripts"), (not found, f"{len(found)} violations")):
                        if not right:
                            wrong += 1
                            print(f"FAILED: {name} {scheme} {width}: {text}")
                    page.close()
        browser.close()
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
