# awk -f curves.awk RUN.jsonl... > curves.html: writes a page for any browser with the loss curves of runs, from their
# files of --metrics.
# In a locale with decimal commas, mawk reads and writes commas, but files and pages have points.
function number(text) { sub(/[.]/, substr(1 / 2, 2, 1), text); return text + 0 }
function fixed(v) { v = sprintf("%.1f", v); sub(/,/, ".", v); return v }
function value(name) {
  if (!match($0, "\"" name "\":-?[0-9.][-+0-9.e]*")) return ""
  return number(substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3))
}
function note(v) {
  if (v > high || points + marks == 1) high = v
  if (v < low || points + marks == 1) low = v
}
# awk takes an argument with = for a variable, unless it begins like a path.
BEGIN { for (i = 1; i < ARGC; ++i) if (ARGV[i] ~ /^[A-Za-z_][A-Za-z_0-9]*=/) ARGV[i] = "./" ARGV[i] }
FNR == 1 && NR > 1 && points + marks { draw() }
FNR == 1 {
  name = FILENAME
  sub(/^\.\//, "", name)
  sub(/\.jsonl$/, "", name)
  gsub(/&/, "\\&amp;", name); gsub(/</, "\\&lt;", name); gsub(/'/, "\\&#39;", name)
}
/"summary":/ { next }
{
  step = value("step")
  loss = value("loss_masked_tokens")
  if (loss == "") loss = value("loss")
  held_out = value("held_out_masked_loss")
  if (held_out == "") held_out = value("held_out_loss")
  if (loss != "") { at[++points] = step; losses[points] = loss; note(loss) }
  if (held_out != "") { mark_at[++marks] = step; mark[marks] = held_out; note(held_out) }
  if (value("held_out_unigram_loss") != "") unigram = value("held_out_unigram_loss")
  rest = $0
  while (match(rest, /"held_out_[a-z0-9_]+":[-+0-9.e]+/)) {
    split(substr(rest, RSTART + 10, RLENGTH - 10), pair, "\":")
    if (!(pair[1] in first)) { first[pair[1]] = number(pair[2]); order[++measures] = pair[1] }
    last[pair[1]] = number(pair[2])
    rest = substr(rest, RSTART + RLENGTH)
  }
}
END {
  if (points + marks) draw()
  if (started) print "</body></html>"
  else { print "error: no file has a loss; give those of --metrics" >"/dev/stderr"; exit 1 }
}

function x(step) { return fixed(50 + 630 * step / (end ? end : 1)) }
function y(v, more) { return fixed(20 + more + 260 * (high - v) / (high - low)) }
function path(color, width,    i, sum, from, text) {  # each point: the mean of the last `width` losses
  for (i = 1; i <= points; ++i) {
    sum += losses[i] - (i > width ? losses[i - width] : 0)
    text = text " " x(at[i]) "," y(sum / (i < width ? i : width))
  }
  printf "<polyline fill='none' stroke='%s' stroke-width='%s' points='%s'/>\n", color, (width > 1 ? "2" : "0.7"), text
}
function label(px, py, anchor, text) {
  printf "<text x='%s' y='%s' text-anchor='%s'>%s</text>\n", px, py, anchor, text
}
function draw(    i, size, tick) {
  if (!started++)
    print "<!DOCTYPE html><html><head><meta charset='utf-8'><title>Loss curves</title><style>body{font:15px sans-serif;" \
      "max-width:720px;margin:2em auto}svg{width:100%}text{font-size:12px;fill:#444}td{padding-right:2em}</style></head><body>"
  if (high == low) high = low + 1
  end = points && (!marks || at[points] > mark_at[marks]) ? at[points] : mark_at[marks]
  printf "<h2>%s</h2>\n<svg viewBox='0 0 700 320' role='img' aria-label='loss of %s by step'>\n", name, name
  size = 10 ^ (int(log((high - low) / 5) / log(10) + 100) - 100)
  if ((high - low) / size > 12) size *= (high - low) / size > 25 ? 5 : 2
  for (tick = int(low / size) * size; tick <= high; tick += size)
    if (tick >= low) {
      printf "<line x1='50' x2='680' y1='%s' y2='%s' stroke='#ddd'/>\n", y(tick), y(tick)
      label(44, y(tick, 4), "end", sprintf("%.5g", tick))
    }
  for (i = 0; i <= 4; ++i)
    if (i == 0 || int(i * end / 4) > int((i - 1) * end / 4)) label(x(int(i * end / 4)), 298, "middle", int(i * end / 4))
  label(680, 315, "end", "step")
  if (unigram) {
    printf "<line x1='50' x2='680' y1='%s' y2='%s' stroke='#888' stroke-dasharray='6'/>\n", y(unigram), y(unigram)
    label(680, y(unigram, -5), "end", "unigram cross-entropy")
  }
  path("#9bc2e6", 1)
  path("#1f6fb4", int(points / 25) + 1)
  for (i = 1; i <= marks; ++i)
    printf "<circle cx='%s' cy='%s' r='4' fill='#d1495b'/>\n", x(mark_at[i]), y(mark[i])
  print "</svg><p>Loss by step: <b style='color:#1f6fb4'>training</b>, <b style='color:#d1495b'>held out</b>.</p><table>"
  for (i = 1; i <= measures; ++i)
    printf "<tr><td>%s</td><td>%.4g at the start</td><td><b>%.4g</b> at the end</td></tr>\n", order[i], first[order[i]],
      last[order[i]]
  print "</table>"
  points = marks = measures = unigram = 0
  split("", first)
}
