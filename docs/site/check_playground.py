"""check_playground.py SITE PROGRAM PICTURES: opens the site from the disk in a headless Chromium. The playground must
show the answers of PROGRAM, the same file compiled natively; the search must find names; pages must fit a telephone.
Pictures of pages go to the folder PICTURES."""
import json
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

site, program, pictures = (Path(argument).resolve() for argument in sys.argv[1:4])
wrong, checks = [], 0


def check(ok, *what):
    global checks
    checks += 1
    if not ok:
        wrong.append(" ".join(str(part) for part in what))


def ask(question):
    return json.loads(subprocess.run([program, question], check=True, capture_output=True, text=True).stdout)


def sized(value):
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    unit = 0
    while value >= 999.5 and unit + 1 < len(units):
        value, unit = value / 1000, unit + 1
    if unit == 0:
        return f"{int(value + 0.5)} B"
    places = 2 if value < 10 else 1 if value < 100 else 0  # toPrecision(3), which rounds halves up
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)} {units[unit]}"


# --- the page agrees with the program ---

options = webdriver.ChromeOptions()
for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--window-size=1300,1600", "--disable-background-networking"):
    options.add_argument(argument)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
# The theme remembers whether it is light or dark.
driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument",
                       {"source": "if (location.protocol === 'file:') localStorage.clear()"})


def address(page):
    return (site / page.split("#")[0]).as_uri() + ("#" + page.split("#")[1] if "#" in page else "")


def cells(table):
    return driver.execute_script("return [...document.querySelectorAll(arguments[0] + ' tbody tr')]"
                                 ".map((row) => [...row.cells].map((cell) => cell.textContent))", "#" + table)


def choose(values):
    for name, value in values.items():
        driver.execute_script("""const field = document.querySelector(`#question [name="${arguments[0]}"]`);
            field.value = arguments[1];
            field.dispatchEvent(new Event("input", { bubbles: true }));""", name, str(value))


def compare(values):
    choose(values)
    question = driver.find_element(By.ID, "playground").get_attribute("data-question")
    for name, value in values.items():
        if name not in ("parameters", "boundary", "inside"):
            check(f"{name}={value}" in question.split("&"), values, "is not what the page asks:", question)
    answer = ask(question)
    refused = driver.find_element(By.ID, "refused")
    check(refused.is_displayed() == ("refused" in answer), question, "is refused by one only")
    check(driver.find_element(By.ID, "answer").is_displayed() != ("refused" in answer), question, "shows an old answer")
    if "refused" in answer:
        check(refused.text == f"Refused: {answer['refused']}.", question, "says", refused.text)
        return answer
    stages = answer["stages"]
    shares = driver.execute_script(
        "return [...document.querySelectorAll('#timeline .share')].map((share) => share.textContent)")
    check(shares[:-1] == [f"{100 * stage['idle']:.1f} %" for stage in stages], question, "shows idle", shares)
    drawn = driver.execute_script("""return [...document.querySelectorAll("#timeline g rect")].map(
        (r) => [r.getAttribute("class"), +r.getAttribute("x"), +r.getAttribute("width")])""")
    actions = [action for stage in stages for action in stage["actions"]]
    check([kind for kind, _, _ in drawn] == [action[0] for action in actions], question, "draws other actions")
    width = driver.execute_script("return +document.querySelector('#timeline rect.idle').getAttribute('width')")
    scale = width / answer["makespan"]
    off = max(abs(x - drawn[0][1] - (action[3] - actions[0][3]) * scale) for (_, x, _), action in zip(drawn, actions))
    check(off < 0.02, question, "draws an action", off, "pixels off")
    parts = ("weights", "gradients", "optimizer", "activations")
    shown = [row[:-1] for row in cells("memory")]
    held = [[stage["memory"][part] for part in parts] for stage in stages]
    check(shown == [[str(i), str(stage["layers"]), str(stage["in_flight"]), *map(sized, bytes_), sized(sum(bytes_))]
                    for i, (stage, bytes_) in enumerate(zip(stages, held))], question, "shows memory", shown)
    shown = [row[:-1] for row in cells("sent")]
    check(shown == [[str(i)] + [sized(stage["sent"][axis]) for axis in ("data", "tensor", "pipeline", "context")]
                    for i, stage in enumerate(stages)], question, "shows as sent", shown)
    return answer


try:
    driver.get(address("playground.html"))
    for values in ({}, {"schedule": "gpipe", "pipeline": 3, "micro_batches": 10},
                   {"schedule": "zero-bubble", "pipeline": 5},
                   {"schedule": "interleaved", "chunks": 2, "micro_batches": 24}, {"tensor": 4, "half": 1, "zero": 3},
                   {"context": 4, "tensor": 1},
                   {"recompute": 1, "data": 3, "zero": 1}, {"forward": 0.5, "backward_weight": 2.25, "zero": 2},
                   {"schedule": "1f1b", "chunks": 1, "pipeline": 1, "layers": 31, "parameters": 201.3}):
        check("refused" not in compare(values), values, "is refused")
    for values, sentence in (({"pipeline": 40}, "every part needs at least one"),
                             ({"pipeline": 4, "chunks": 2}, "interleaved"),
                             ({"chunks": 1, "data": 0}, "data is 1 to 4096, not 0"),
                             ({"data": 1, "layers": ""}, "layers is a number")):
        answer = compare(values)
        check(sentence in answer.get("refused", ""), values, "gives", answer)
    driver.get("about:blank")
    driver.get(address("playground.html#pipeline=3&schedule=zero-bubble&chunks=1&layers=6&micro_batches=6"))
    drawn = driver.execute_script("return document.querySelectorAll('#timeline .stage').length")
    check(drawn == 3, "a link with 3 stages draws", drawn)
    compare({"layers": 6})
    # The same tab, links that were escaped twice or wrongly, and parameters without a field on the page.
    for link, asked in (("data=5&pipeline=2", "data=5&"), ("data%3D6%26pipeline=2", "data=6&"),
                        ("pipeline=2", "data=2&"), ("layers=%E0%A4%A&data=7", "layers=&"),
                        ("amp;data=2&", "&amp;data=2"), ("layers=6", "layers=6&")):
        driver.get(address(f"playground.html#{link}"))
        WebDriverWait(driver, 10).until(lambda _, asked=asked: asked in driver.find_element(
            By.ID, "playground").get_attribute("data-question"), f"the page does not ask what {link} says")
    compare({"layers": 12})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    choose({"pipeline": 8, "micro_batches": 200, "layers": 64})
    box, picture = driver.execute_script("return ['', ' svg'].map((part) => "
                                         "document.querySelector('#timeline' + part).getBoundingClientRect().width)")
    check(picture <= box, "on paper the timeline is", picture, "wide, and has room for", box)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})

    # --- the search ---
    driver.get(address("index.html"))
    for word, page in (("OneForwardOneBackward", "api/parallel.html"), ("bubble", "pipeline_parallel.html")):
        field = driver.find_element(By.CSS_SELECTOR, ".md-search__input")
        field.click()
        field.clear()
        field.send_keys(word)

        def found(_):
            return any(page in link for link in driver.execute_script(
                "return [...document.querySelectorAll('.md-search-result__link')].map((a) => a.href)"))
        try:
            check(WebDriverWait(driver, 10).until(found), word)
        except TimeoutException:
            check(False, "the search for", word, "does not find", page)

    # --- pictures ---
    pictures.mkdir(parents=True, exist_ok=True)
    lessons = sorted(path.name for path in (site / "lessons").glob("*.html") if path.name != "index.html")
    shown = {"landing": "index.html", "lessons": "lessons/index.html", "lesson": f"lessons/{lessons[0]}",
             "page": "pipeline_parallel.html", "reference": "api/parallel.html",
             "playground": "playground.html#pipeline=4&schedule=zero-bubble&micro_batches=16&data=2"}
    for name, page in shown.items():
        for look, width, scheme in (("light", 1300, "light"), ("dark", 1300, "dark"), ("narrow", 390, "light")):
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                   {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": 1500, "deviceScaleFactor": 1, "mobile": width < 500})
            driver.get("about:blank")
            driver.get(address(page))
            wide = driver.execute_script("return document.documentElement.scrollWidth")
            check(wide <= width, page, "is", wide, "pixels wide on a screen of", width)
            driver.save_screenshot(str(pictures / f"{name}_{look}.png"))
    for entry in driver.get_log("browser"):
        check(entry["level"] != "SEVERE", "the browser says:", entry["message"])
finally:
    driver.quit()

print(*wrong, sep="\n", end="\n" if wrong else "")
print(f"{checks} checks of the playground, the search and the pages; pictures in {pictures}")
sys.exit(1 if wrong else 0)
