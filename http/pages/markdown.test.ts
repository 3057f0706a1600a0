import { expect, test } from 'vitest'
import { renderMarkdown, titleOf } from './markdown.ts'

const linkTo = (target: string) => (target.startsWith('../') ? undefined : target)
const html = (text: string) => renderMarkdown(text, { linkTo })

test('headings have the anchors of Markdown, and text is never markup', () => {
  expect(html("## What `<b>` is, and isn't")).toBe(
    '<h2 id="what-b-is-and-isnt">What <code>&lt;b&gt;</code> is, and isn&#39;t</h2>',
  )
  expect(html('<script>alert(1)</script>\nsecond line')).toBe(
    '<p>&lt;script&gt;alert(1)&lt;/script&gt;\nsecond line</p>',
  )
  expect(titleOf('text\n# The `title`\n')).toBe('The title')
})

test('links lead somewhere, or are their label', () => {
  expect(html('see [a `b`](c.md#d), [the code](../x.ts) and <https://example.com>')).toBe(
    '<p>see <a href="c.md#d">a <code>b</code></a>, the code and <a href="https://example.com">https://example.com</a></p>',
  )
  expect(renderMarkdown('[x](y)', { linkTo: () => '"><script>' })).toBe(
    '<p><a href="&quot;&gt;&lt;script&gt;">x</a></p>',
  )
})

test('code is shown as it is', () => {
  expect(html('```sh\ncurl "$A" | x **y** [z](w)\n\n  indented\n```')).toBe(
    '<pre><code>curl &quot;$A&quot; | x **y** [z](w)\n\n  indented</code></pre>',
  )
  expect(html('`**a**` and **b** and *c*')).toBe('<p><code>**a**</code> and <strong>b</strong> and <em>c</em></p>')
})

test('tables have cells with code and bars', () => {
  expect(html('| A | B |\n|---|---|\n| `x\\|y` | [l](m) |')).toBe(
    '<div class="table" tabindex="0"><table><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td><code>x|y</code></td><td><a href="m">l</a></td></tr></tbody></table></div>',
  )
})

test('lists have items of several lines, code and lists', () => {
  expect(html('- one\n  goes on\n- two\n\n  ```sh\n  run\n  ```\n\n  - inner\n\nafter')).toBe(
    '<ul><li>one\ngoes on</li>\n<li><p>two</p>\n<pre><code>run</code></pre>\n<ul><li>inner</li></ul></li></ul>\n<p>after</p>',
  )
  expect(html('3. three\n4. four')).toBe('<ol start="3"><li>three</li>\n<li>four</li></ol>')
})
