"""The explorer's page in a real browser: loaded, clicked, searched, folded, played and driven by keys."""

from __future__ import annotations

import pytest
from chromium import PROGRAM, Browser
from viz_models import tied_step

import flambeau as torch
from flambeau import viz

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    model, step = tied_step()
    viz.explore(step, model, folder / "step.html")
    with Browser() as browser:
        browser.path = folder / "step.html"
        yield browser


@pytest.fixture
def fresh(page):
    """The page as it is when it is opened."""
    page.errors.clear(), page.requests.clear()
    page.open(page.path)
    return page


@pytest.fixture
def opened(fresh):
    """With all modules open."""
    fresh.js("document.getElementById('expand').click()")
    return fresh


def vertex(page, **wanted) -> int:
    tests = " && ".join([f"v.{k} === {v!r}" for k, v in wanted.items()])
    return page.js(f"explorer.data.vertices.findIndex(v => {tests})")


def group(page, path: str) -> int:
    return page.js(f"explorer.data.groups.findIndex(g => g.path === {path!r})")


def click(page, item: int) -> None:
    at = page.js(f"explorer.at({item})")
    page.click(at["x"], at["y"])


def step(page) -> int:
    return page.js("explorer.look.step")


def panel(page) -> str:
    return page.js("document.getElementById('panel').innerText")


def test_it_loads_quietly_and_alone(fresh):
    fresh.screenshot()
    assert fresh.errors == []
    assert fresh.requests == [fresh.path.resolve().as_uri()]
    assert fresh.js("document.title") == "Tied · flambeau"
    assert fresh.js("document.getElementById('facts').innerText").startswith("46 nodes · 1,224 parameters · loss ")
    assert fresh.js("document.getElementById('notice').hidden")
    assert "Held now".upper() in panel(fresh).upper()


def test_the_network_is_out_of_reach(fresh):
    blocked = fresh.js("fetch('http://127.0.0.1:9/').then(() => 'came', error => String(error))")
    assert "Failed to fetch" in blocked
    assert any("Content Security Policy" in text for text in fresh.errors)


def test_a_click_shows_all_about_a_node(opened):
    item = vertex(opened, title="gelu", module="blocks.0.mlp.1")
    click(opened, item)
    text = panel(opened)
    for part in ("gelu", "GeluBackward0", "blocks.0.mlp.1", "viz_models.py", "in forward", "return x + self.mlp(self.norm(x))",
                 "grad of self", "3×5×32", "float32", "norm", "std", "SAVED FOR THE BACKWARD PASS", "1.9 KB"):
        assert part.lower() in text.lower(), part
    assert opened.js("document.querySelectorAll('#panel .hist rect').length") > 5
    opened.js("document.querySelector('#panel [data-go]').click()")  # its input
    assert panel(opened).split()[:2] == ["view", "ViewBackward0"]
    opened.click(20, 70)  # the ground
    assert opened.js("explorer.look.selected") is None
    assert opened.errors == []


def test_modules_close_and_open(opened):
    number, count = group(opened, "blocks.1"), opened.js("explorer.scene.order.length")
    at = opened.js(f"explorer.at({len_vertices(opened)} + {number})")
    opened.click(at["signX"], at["signY"])
    closed = opened.js("explorer.scene.order.length")
    assert closed < count and not opened.js(f"explorer.data.groups[{number}].open")
    assert vertex_is_hidden(opened, "blocks.1.norm.weight")
    click(opened, len_vertices(opened) + number)
    assert "Block" in panel(opened) and "Open (Enter)" in panel(opened)
    opened.key("Enter")
    assert opened.js("explorer.scene.order.length") == count
    opened.js("document.getElementById('collapse').click()")
    assert opened.js("explorer.scene.order.length") < 8
    at = opened.js(f"explorer.at({len_vertices(opened)} + 1)")  # the model itself
    opened.click(at["x"], at["y"], count=2)
    assert opened.js("explorer.data.groups[1].open")
    assert opened.errors == []


def len_vertices(page) -> int:
    return page.js("explorer.data.vertices.length")


def vertex_is_hidden(page, title: str) -> bool:
    return page.js(f"!explorer.scene.boxes.has({vertex(page, title=title)})")


def test_search_finds_and_opens(fresh):
    fresh.js("document.getElementById('collapse').click(); document.getElementById('graph').focus()")
    fresh.key("/")
    fresh.type("gelu 3×5×32")
    assert fresh.js("document.getElementById('matches').innerText") == "2 found"
    assert fresh.js("explorer.look.matches.size") == 1  # both are inside of what is closed
    fresh.key("Enter")
    first = fresh.js("explorer.look.selected")
    assert first == vertex(fresh, title="gelu", module="blocks.0.mlp.1") and fresh.js(f"explorer.scene.boxes.has({first})")
    fresh.key("Enter")
    assert fresh.js("explorer.look.selected") == vertex(fresh, title="gelu", module="blocks.1.mlp.1")
    assert fresh.js("document.getElementById('matches').innerText") == "2/2"
    fresh.key("Escape")
    assert fresh.js("explorer.look.matches") is None
    fresh.key("/")
    fresh.type("viz_models cross_entropy")  # by line
    assert fresh.js("document.getElementById('matches').innerText") != "0 found"
    assert fresh.errors == []


def test_keys_step_and_play(opened):
    turn = opened.js("explorer.data.steps.findIndex(s => s[0] !== 0)")
    assert step(opened) == turn  # it opens when all is computed
    opened.js("document.getElementById('graph').focus()")
    opened.key("ArrowRight"), opened.key("ArrowRight")
    assert step(opened) == turn + 2
    opened.key("ArrowLeft")
    assert step(opened) == turn + 1
    opened.key("ArrowRight", modifiers=8)
    assert step(opened) == turn + 11
    opened.key("Home")
    assert step(opened) == 0 and opened.js("explorer.stateOf(0)") != "now"
    opened.key("Space")
    assert opened.js("explorer.isPlaying()")
    opened.until("explorer.look.step >= 3")
    opened.key("Escape")
    assert not opened.js("explorer.isPlaying()")
    opened.key("End")
    assert step(opened) == opened.js("explorer.data.steps.length")
    assert "0 B" in opened.js("document.getElementById('held').innerText")
    assert opened.errors == []


def test_play_to_the_end(opened):
    opened.js("document.getElementById('speed').value = '64'; document.getElementById('play').click()")
    opened.until("explorer.look.step === explorer.data.steps.length")
    opened.until("!explorer.isPlaying()")
    states = opened.js("explorer.data.vertices.map((v, i) => [v.kind, explorer.stateOf(i)])")
    assert {state for kind, state in states if kind in ("op", "leaf")} <= {"done", "now"}
    assert opened.errors == []


def test_gradients_arrive_and_are_summed(opened):
    item = vertex(opened, title="tokens.weight")
    steps = opened.js(f"explorer.data.links.filter(l => l[0] === {item}).map(l => explorer.data.vertices[l[1]].ran)")
    early, late = sorted(steps)
    opened.js(f"explorer.goTo({early}); explorer.select({item})")
    assert opened.js(f"explorer.stateOf({item})") == "waiting" and "1 of 2 gradients are here" in panel(opened)
    opened.js(f"explorer.goTo({late})")
    assert opened.js(f"explorer.stateOf({item})") == "ready"
    opened.js(f"explorer.goTo({late} + 1)")
    assert opened.js(f"explorer.stateOf({item})") == "now"
    said = opened.js("document.getElementById('say').innerText")
    assert "2 gradients, summed, are accumulated into tokens.weight.grad" in said


def test_what_was_kept_is_freed(opened):
    item = vertex(opened, title="gelu", module="blocks.0.mlp.1")
    ran = opened.js(f"explorer.data.vertices[{item}].ran")
    opened.js(f"explorer.select({item}); explorer.goTo({ran} - 1)")
    assert f"held until step {ran}" in panel(opened)
    opened.js("document.querySelector('[data-step]').click()")  # play to where it runs
    assert step(opened) == ran and f"freed at step {ran}" in panel(opened)


def test_the_strip_is_a_slider(opened):
    box = opened.js("document.getElementById('slider').getBoundingClientRect().toJSON()")
    left, top, width, height = [box[name] for name in ("left", "top", "width", "height")]
    opened.click(left + width * 0.75, top + height / 2)
    steps = opened.js("explorer.data.steps.length")
    assert abs(step(opened) - 0.75 * steps) < 0.05 * steps


def test_drag_and_wheel_move_the_view(opened):
    before = opened.js("({...explorer.view})")
    opened.drag(30, 300, 130, 360)
    moved = opened.js("({...explorer.view})")
    assert (before["x"] - moved["x"]) * before["zoom"] == pytest.approx(100, abs=1)
    assert (before["y"] - moved["y"]) * before["zoom"] == pytest.approx(60, abs=1)
    opened.wheel(300, 300, -100)
    opened.until(f"explorer.view.zoom > {before['zoom']}")
    opened.js("document.getElementById('graph').focus()")
    opened.key("f")
    assert opened.js("explorer.view.zoom") == pytest.approx(before["zoom"])


def test_arrows_walk_along_the_graph(opened):
    item = vertex(opened, title="gelu", module="blocks.0.mlp.1")
    opened.js(f"explorer.select({item}); document.getElementById('graph').focus()")
    opened.key("ArrowUp")
    above = opened.js("explorer.look.selected")
    opened.key("ArrowDown")
    assert above != item and opened.js("explorer.look.selected") == item


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_follows_the_systems_theme(fresh, dark):
    fresh.theme(dark)
    fresh.until(f"document.documentElement.dataset.theme === '{'dark' if dark else 'light'}'")
    back = fresh.js("getComputedStyle(document.body).backgroundColor")
    assert (max(int(n) for n in back[4:-1].split(",")) < 80) == dark
    assert len(fresh.screenshot()) > 20_000
    corner = fresh.js("[...document.getElementById('graph').getContext('2d').getImageData(2, 2, 1, 1).data].slice(0, 3)")
    assert (max(corner) < 80) == dark
    fresh.theme(False)


def test_kinds_and_states_differ_without_colour(opened):
    """Drawn in one colour, boxes of different kinds, and of different states, are different pictures."""
    pictures = opened.js("""(() => {
        const style = document.documentElement.style;
        for (const rule of document.styleSheets[0].cssRules) if (rule.selectorText === ":root")
            for (const name of rule.style)
                style.setProperty(name, /back|surface|raised|dots|group-fill|-soft/.test(name) ? "#ffffff" : "#000000");
        document.getElementById("theme").click();
        const c = document.getElementById("graph").getContext("2d"), out = {}, scene = explorer.scene;
        scene.ways.length = 0;
        Object.assign(explorer.view, { x: -20, y: -20, zoom: 1 });
        const shot = (name, item) => {
            Object.assign(explorer.data.vertices[item], { label: "", sub: "", memory: "" });
            scene.order.splice(0, Infinity, { item, x: 0, y: 0, w: 100, h: 42 });
            explorer.drawTime();
            out[name] = [...c.getImageData(0, 0, 140, 80).data].filter((_, i) => i % 4 === 0).join();
        };
        explorer.goTo(explorer.data.steps.findIndex(s => s[0] !== 0));
        for (const kind of ["leaf", "data", "output"]) shot(kind, explorer.data.vertices.findIndex(v => v.kind === kind));
        const gelu = explorer.data.vertices.findIndex(v => v.title === "gelu"), ran = explorer.data.vertices[gelu].ran;
        shot("op", gelu);
        explorer.goTo(ran - 1); shot("ready", gelu);
        explorer.goTo(ran); shot("now", gelu);
        explorer.goTo(ran + 1); shot("done", gelu);
        return out; })()""")
    assert len(pictures) == 7 and len(set(pictures.values())) == 7


def test_an_unrecorded_graph_says_so(page, tmp_path):
    model, step = tied_step()
    viz.explore(step(), model, tmp_path / "g.html")
    page.errors.clear()
    page.open(tmp_path / "g.html")
    notice = page.js("document.getElementById('notice').innerText")
    assert notice.startswith("Source lines are unknown, and modules are guessed from parameters")
    page.js(f"explorer.select({vertex(page, title='nll_loss')})")
    assert "Unknown: the forward pass was not recorded." in panel(page)
    assert page.errors == []


def test_five_thousand_nodes(page, tmp_path):
    x, w = torch.ones(2, 2), torch.eye(2, requires_grad=True)
    for _ in range(1666):
        x = (x @ w + 0.1).tanh()
    viz.explore(x.sum(), None, tmp_path / "g.html")
    page.errors.clear()
    page.open(tmp_path / "g.html")
    assert page.js("explorer.data.vertices.length") >= 5000
    assert page.js("explorer.scene.order.length") >= 5000
    page.js("document.getElementById('fit').click(); explorer.drawTime()")
    assert page.js("explorer.look.drawn") >= 5000  # all of them in sight
    page.js("explorer.view.zoom = 1; explorer.view.x = explorer.view.y = 0; explorer.drawTime()")
    assert 0 < page.js("explorer.look.drawn") < 300  # what is out of sight is not drawn
    page.js("document.getElementById('speed').value = '64'; document.getElementById('play').click()")
    page.until("explorer.look.step > 5100")
    assert page.errors == []
