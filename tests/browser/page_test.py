#!/usr/bin/env python3
"""The page in a browser: what it asks for, what it says, what works without a script or a mouse.

In: the folder that poise_sample_pages filled, and Debian's chromium, driven by playwright. Out: the
report of unittest, exit code 1 when something failed. Must not happen here: a request that leaves
the machine (chromium itself is kept from phoning home; what is judged are the page's own requests).
Run by `./do test` in the environment that requirements.txt names.
"""

import csv
import json
import pathlib
import shutil
import sys
import unittest

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

PAGES = pathlib.Path()
ALL = ("sample", "gradient", "plain", "hostile", "large")
LARGEST_PAGE = 1_000_000  # bytes, 48 layers of 32 heads
CHROMIUM = shutil.which("chromium")
SWITCHES = ["--no-sandbox", "--disable-background-networking"]


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.driver = sync_playwright().start()
        cls.browser = cls.driver.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.driver.stop()

    def open(self, name, fragment="", **options):
        """A fresh window with the page; its requests and messages are kept in self."""
        options.setdefault("viewport", {"width": 1240, "height": 900})
        context = self.browser.new_context(**options)
        self.addCleanup(context.close)
        page = context.new_page()
        self.requests, self.messages = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.goto((PAGES / f"{name}.html").as_uri() + fragment)
        return page


class Quiet(Browser):
    def test_a_page_asks_for_nothing_but_itself_and_says_nothing_on_the_console(self):
        for name in ALL:
            for scheme in ("light", "dark"):
                page = self.open(name, color_scheme=scheme)
                page.locator(".switch label").last.click()
                page.locator(".grid a").first.click()
                page.wait_for_timeout(50)
                self.assertEqual(self.requests, [(PAGES / f"{name}.html").as_uri()])
                self.assertEqual(self.messages, [], name)

    def test_the_policy_stops_what_is_not_the_page(self):
        page = self.open("sample")
        page.evaluate("""() => {
          window.broken = [];
          addEventListener('securitypolicyviolation', e => broken.push(e.effectiveDirective));
          const script = document.createElement('script');
          script.textContent = 'window.obeyed = 1';
          const style = document.createElement('style');
          style.textContent = 'body { display: none }';
          document.head.append(script, style);
          new Image().src = 'http://127.0.0.1:9/pixel';
          fetch('http://127.0.0.1:9/data').catch(() => {});
        }""")
        page.wait_for_timeout(300)
        self.assertEqual(sorted(page.evaluate("broken.map(d => d.split('-')[0])")),
                         ["connect", "img", "script", "style"])
        self.assertIsNone(page.evaluate("window.obeyed ?? null"))
        self.assertEqual(page.evaluate("getComputedStyle(document.body).display"), "block")

    def test_names_from_outside_are_text(self):
        page = self.open("hostile", "#h3")
        self.assertIsNone(page.evaluate("window.obeyed ?? null"))
        self.assertIn("</script>", page.locator("#card h2").text_content())

    def test_the_largest_page_stays_within_its_budget(self):
        self.assertLess((PAGES / "large.html").stat().st_size, LARGEST_PAGE)


class Accessible(Browser):
    def found_by_axe(self, page):
        result = Axe().run(page)
        return [f"{v['id']}: {v['help']}: {node['html'][:160]}"
                for v in result.response["violations"] for node in v["nodes"][:3]]

    def test_axe_finds_nothing_in_light_and_dark(self):
        for name in ("sample", "gradient", "plain", "hostile"):
            for scheme in ("light", "dark"):
                for fragment in ("", "#h1"):
                    page = self.open(name, fragment, color_scheme=scheme)
                    self.assertEqual(self.found_by_axe(page), [], (name, scheme, fragment))

    def assert_card_has_the_focus(self, page):
        page.wait_for_timeout(100)  # the hash has changed, its event is on the way
        self.assertTrue(page.evaluate("document.activeElement.matches('#card h2')"))

    def test_the_keyboard_leads_from_the_top_to_a_card_and_back(self):
        page = self.open("sample")
        for _ in range(20):
            page.keyboard.press("Tab")
            if page.evaluate("!!document.activeElement.closest('.grid')"):
                break
        focused = "document.activeElement.getAttribute('href')"
        self.assertEqual(page.evaluate(focused), "#h0")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        self.assertEqual(page.evaluate(focused), "#h10")
        page.keyboard.press("Home")
        self.assertEqual(page.evaluate(focused), "#h8")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        self.assert_card_has_the_focus(page)
        self.assertEqual(page.locator("#card h2").text_content(), "Head card: L0 H0")
        page.keyboard.press("Tab")
        self.assertTrue(page.evaluate("document.activeElement.matches('.d-back')"))
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate(focused), "#h0")
        page.keyboard.press("Enter")  # the same head again
        self.assert_card_has_the_focus(page)

    def test_the_metric_switch_works_by_arrow_keys_and_changes_numbers_and_tints(self):
        page = self.open("sample")
        read = """() => { const cell = document.querySelector('.grid td:nth-child(5)');
          return [cell.innerText.trim(), getComputedStyle(cell).backgroundColor]; }"""
        page.locator(".switch input").first.focus()
        seen = [tuple(page.evaluate(read))]
        for _ in range(4):
            page.keyboard.press("ArrowRight")
            seen.append(tuple(page.evaluate(read)))
        self.assertEqual(len({text for text, _ in seen}), 5, seen)
        self.assertGreater(len({colour for _, colour in seen}), 2, seen)

    def test_the_card_shows_what_the_row_says(self):
        page = self.open("sample", "#h3")
        row = page.locator("#h3 td").all_text_contents()
        self.assertEqual(page.locator("#card dd").all_text_contents(), row[1:])
        self.assertIn("Saturated: σ 15.1", page.locator(".d-words").text_content())
        self.assertGreater(page.locator(".d-area").get_attribute("d").count("V"), 20)
        self.assertIn("× 47", page.locator(".d-norms-text").text_content().replace("\u00a0", " "))


class WithoutScript(Browser):
    def test_every_head_verdict_and_finding_can_be_read(self):
        page = self.open("sample", java_script_enabled=False)
        text = page.locator("body").inner_text()
        for part in ("one-hot, perhaps by design", "Norms first, alignment second", "L11 H7",
                     "Rules and their sources", "Glossary"):
            self.assertIn(part, text)
        self.assertEqual(page.locator(".heads tbody tr").count(), 16)
        for part in ("#card", ".tools", ".heads button"):
            self.assertFalse(page.locator(part).first.is_visible(), part)
        page.locator(".switch label").nth(2).click()
        self.assertEqual(page.locator(".grid td").nth(3).inner_text().split()[-1], ".02")

    def test_a_targeted_row_stands_as_a_card_with_its_own_labels(self):
        page = self.open("sample", "#h3", java_script_enabled=False)
        row = page.locator("#h3")
        self.assertTrue(row.is_visible())
        self.assertFalse(page.locator("#h4").is_visible())
        self.assertIn("Saturated: σ 15.1", row.inner_text())
        self.assertTrue(page.get_by_role("link", name="all heads").is_visible())
        labels = page.locator("#h3 td:nth-child(n+3)").count()
        self.assertEqual(labels, page.locator(".heads thead th").count() - 2)

    def test_labels_of_the_card_are_the_headings_of_the_table(self):
        for name in ("sample", "gradient"):
            page = self.open(name, "#h3")
            wrong = page.evaluate("""() => {
              document.querySelector('.heads').classList.add('nojs');
              const heads = [...document.querySelectorAll('.heads thead th')].slice(2);
              return [...document.querySelector('#h3').cells].slice(2).filter((cell, i) =>
                getComputedStyle(cell, '::before').content !==
                  '"' + heads[i].textContent.trim() + '"').length;
            }""")
            self.assertEqual(wrong, 0)


class Everywhere(Browser):
    def overflow(self, page):
        return page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def test_nothing_scrolls_sideways_at_320_pixels(self):
        for name in ALL:
            for fragment in ("", "#h0"):
                page = self.open(name, fragment, viewport={"width": 320, "height": 700})
                self.assertLessEqual(self.overflow(page), 0, name + fragment)
        page = self.open("sample", "#h3", viewport={"width": 320, "height": 700},
                         java_script_enabled=False)
        self.assertTrue(page.locator("#h3").is_visible())
        box = page.locator("#h3").bounding_box()
        self.assertLessEqual(box["x"] + box["width"], 320)

    def test_a_grid_of_32_heads_scrolls_in_a_container_of_its_own(self):
        page = self.open("large", viewport={"width": 960, "height": 700})
        inner = page.evaluate("""() => { const box = document.querySelector('.switch .scroll');
          return [box.scrollWidth > box.clientWidth, box.scrollHeight > box.clientHeight,
                  box.tabIndex]; }""")
        self.assertEqual(inner, [True, True, 0])
        self.assertLessEqual(self.overflow(page), 0)

    def test_paper_has_everything_but_the_controls_and_fits_its_width(self):
        paper = {"width": 718, "height": 1000}  # A4 less its margins
        page = self.open("sample", "#h3", viewport=paper)
        page.emulate_media(media="print")
        for part in ("#card", ".tools", ".hint", ".skip"):
            self.assertFalse(page.locator(part).first.is_visible(), part)
        for part in ("h1", ".findings", ".grid", "#hist-raw-t >> xpath=..", ".heads", ".rules"):
            self.assertTrue(page.locator(part).first.is_visible(), part)
        self.assertLessEqual(self.overflow(page), 0)
        self.assertGreater(len(page.pdf()), 20_000)


class Table(Browser):
    def column(self, page, number):
        return page.locator(f".heads tbody tr > :nth-child({number})").all_text_contents()

    def test_a_heading_sorts_by_its_column_down_then_up(self):
        page = self.open("sample")
        numbers = lambda: [float(text) for text in self.column(page, 3)]
        button = page.locator(".heads thead th").nth(2).locator("button")
        button.click()
        self.assertEqual(numbers(), sorted(numbers(), reverse=True))
        self.assertEqual(page.locator(".heads thead th").nth(2).get_attribute("aria-sort"),
                         "descending")
        button.click()
        self.assertEqual(numbers(), sorted(numbers()))
        page.locator(".heads thead th button").first.click()
        self.assertEqual(self.column(page, 1)[:3], ["L0 H0", "L0 H1", "L0 H2"])
        page.locator(".heads thead th").nth(1).locator("button").click()
        self.assertIn("saturated", self.column(page, 2)[0])

    def file_of(self, page, button):
        with page.expect_download() as download:
            page.locator(button).click()
        return pathlib.Path(download.value.path()).read_text(encoding="utf-8")

    def test_csv_and_json_hold_every_head_in_order(self):
        page = self.open("sample")
        page.locator(".heads thead th").nth(2).locator("button").click()  # order must not matter
        rows = list(csv.DictReader(self.file_of(page, "#csv").splitlines()))
        document = json.loads(self.file_of(page, "#json"))
        self.assertEqual(document["schema"], "poise.heads")
        names = [head["name"] for head in document["heads"]]
        self.assertEqual([row["head"] for row in rows], names)
        self.assertEqual([row["head"] for row in rows][:2] + [rows[-1]["head"]],
                         ["L0 H0", "L0 H1", "L11 H7"])
        self.assertEqual(rows[3]["flags"], "saturated, peaked by design")
        for row, head in zip(rows, document["heads"]):
            self.assertEqual(float(row["sigma"]), head["sigma"])
        self.assertAlmostEqual(document["heads"][3]["sigma"], 15.12, places=2)

    def test_a_name_is_no_formula_in_a_spreadsheet(self):
        rows = list(csv.DictReader(self.file_of(self.open("hostile"), "#csv").splitlines()))
        self.assertTrue(all(row["head"].startswith("'=") for row in rows))


if __name__ == "__main__":
    PAGES = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
