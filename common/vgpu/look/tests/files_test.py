"""The files that the page is made of. Needs no browser."""
import re
import subprocess
import unittest

from support import PAGE, ROOT


def listed():
    return [line.strip() for line in (PAGE / "files.txt").read_text().splitlines()
            if line.strip() and not line.startswith("#")]


class Files(unittest.TestCase):
    def test_the_list_names_every_style_and_script_once(self):
        there = [path.relative_to(PAGE).as_posix() for kind in ("css", "js") for path in PAGE.rglob("*." + kind)]
        self.assertEqual(sorted(listed()), sorted(there))

    def test_nothing_ends_the_element_that_it_stands_in(self):
        for name in listed():
            text = (PAGE / name).read_text().lower()
            for end in ("</script", "</style", "<!--"):
                self.assertNotIn(end, text, name)

    def test_no_address_of_a_network(self):
        for name in [*listed(), "page.html"]:
            for address in re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^'\"\s]*", (PAGE / name).read_text()):
                self.assertEqual(address, "http://www.w3.org/2000/svg", name)

    def test_text_never_becomes_markup(self):
        for name in listed():
            found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function",
                               (PAGE / name).read_text())
            self.assertEqual(found, [], name)

    def test_no_file_and_no_function_is_too_long(self):
        for name in listed():
            lines = (PAGE / name).read_text().splitlines()
            self.assertLess(len(lines), 600, name)
            begin = None
            for number, line in enumerate(lines, 1):
                if re.match(r"(async )?function |  \w+\(.*\) \{$", line):
                    begin = number
                elif re.match(r"(  )?\}$", line) and begin:
                    self.assertLessEqual(number - begin, 120, f"{name}:{begin}")
                    begin = None

    def test_the_page_is_put_together_whole(self):
        made = subprocess.run(["common/make/look_page.sh", str(PAGE.relative_to(ROOT))], cwd=ROOT, text=True,
                              capture_output=True, check=True).stdout
        self.assertEqual(made.count("<!-- look:data -->"), 1)
        self.assertNotIn("<!-- look:css -->", made)
        self.assertNotIn("<!-- look:js -->", made)
        places = [made.index((PAGE / name).read_text().strip()) for name in listed() if name.endswith(".js")]
        self.assertEqual(places, sorted(places), "the scripts stand in the order of the list")


if __name__ == "__main__":
    unittest.main()
