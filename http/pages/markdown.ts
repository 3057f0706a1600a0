/**
 * The Markdown of the guides as HTML: headings, paragraphs, lists, tables, code, links and emphasis, as GitHub shows them. Text never
 * becomes markup.
 */

export type MarkdownOptions = {
  /** The address of a link; undefined: its label is shown without one. */
  readonly linkTo: (target: string) => string | undefined
}

const CODE_MARK = /^(\s*)```(\S*)\s*$/
const HEADING = /^(#{1,6}) (.+)$/
const ITEM = /^(\s*)(?:[-*]|(\d{1,3})\.) (.*)$/
const TABLE_RULE = /^\|[ :|-]+\|\s*$/

export function renderMarkdown(text: string, options: MarkdownOptions): string {
  return blocksOf(text.split('\n'), options).join('\n')
}

/** The first heading; undefined: there is none. */
export function titleOf(text: string): string | undefined {
  const line = text.split('\n').find((one) => one.startsWith('# '))
  return line?.slice(2).replaceAll('`', '').trim()
}

/** The anchor of a heading, as Markdown renderers name it: lower case, `-` for spaces, no other signs. */
const slugOf = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^a-z0-9 _-]/g, '')
    .replaceAll(' ', '-')

function blocksOf(lines: readonly string[], options: MarkdownOptions): string[] {
  const blocks: string[] = []
  let paragraph: string[] = []
  const flush = () => {
    if (paragraph.length > 0) blocks.push(`<p>${inline(paragraph.map((line) => line.trim()).join('\n'), options)}</p>`)
    paragraph = []
  }
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] as string
    const mark = CODE_MARK.exec(line)
    const heading = HEADING.exec(line)
    const item = ITEM.exec(line)
    if (mark !== null) {
      flush()
      const end = lines.findIndex((one, index) => index > at && one.trim() === '```')
      const last = end === -1 ? lines.length : end
      blocks.push(codeBlock(lines.slice(at + 1, last), mark[1]?.length ?? 0))
      at = last
    } else if (heading !== null) {
      flush()
      const [, marks = '', words = ''] = heading
      blocks.push(`<h${marks.length} id="${slugOf(words)}">${inline(words, options)}</h${marks.length}>`)
    } else if (line.startsWith('|') && TABLE_RULE.test(lines[at + 1] ?? '')) {
      flush()
      const end = lines.findIndex((one, index) => index > at && !one.startsWith('|'))
      const last = end === -1 ? lines.length : end
      blocks.push(tableOf(lines.slice(at, last), options))
      at = last - 1
    } else if (item !== null && (paragraph.length === 0 || item[2] === undefined)) {
      flush()
      const last = endOfList(lines, at, item[1]?.length ?? 0)
      blocks.push(listOf(lines.slice(at, last), item[1]?.length ?? 0, options))
      at = last - 1
    } else if (line.trim() === '') flush()
    else paragraph.push(line)
  }
  flush()
  return blocks
}

/** A list ends at a line that is neither an item nor indented below one. */
function endOfList(lines: readonly string[], start: number, indentation: number): number {
  let end = start + 1
  for (let at = start + 1; at < lines.length; at++) {
    const line = lines[at] as string
    const isInside = line.search(/\S/) > indentation || ITEM.exec(line)?.[1]?.length === indentation
    if (line.trim() === '') continue
    // Without an empty line before it, a line that is not indented continues the item.
    if (
      !isInside &&
      (lines[at - 1]?.trim() === '' || HEADING.test(line) || line.startsWith('|') || CODE_MARK.test(line))
    )
      break
    end = at + 1
  }
  return end
}

function listOf(lines: readonly string[], indentation: number, options: MarkdownOptions): string {
  const items: { number: string | undefined; lines: string[] }[] = []
  for (const line of lines) {
    const found = ITEM.exec(line)
    if (found !== null && found[1]?.length === indentation) items.push({ number: found[2], lines: [found[3] ?? ''] })
    else items.at(-1)?.lines.push(line)
  }
  const number = items[0]?.number
  const [open, close] = number === undefined ? ['<ul>', '</ul>'] : [`<ol start="${number}">`, '</ol>']
  const rendered = items.map(({ lines: own }) => {
    const [first = '', ...others] = own
    const depth = Math.min(...others.filter((line) => line.trim() !== '').map((line) => line.search(/\S/)))
    const blocks = blocksOf([first, ...others.map((line) => line.slice(Number.isFinite(depth) ? depth : 0))], options)
    const [only = ''] = blocks
    // An item of one paragraph has no margins.
    return `<li>${blocks.length === 1 && only.startsWith('<p>') ? only.slice('<p>'.length, -'</p>'.length) : blocks.join('\n')}</li>`
  })
  return `${open}${rendered.join('\n')}${close}`
}

function codeBlock(lines: readonly string[], indentation: number): string {
  return `<pre><code>${escapeHtml(lines.map((line) => line.slice(Math.min(indentation, line.search(/\S|$/)))).join('\n'))}</code></pre>`
}

function tableOf([head = '', _rule, ...rows]: readonly string[], options: MarkdownOptions): string {
  const row = (line: string, tag: 'td' | 'th') =>
    `<tr>${cellsOf(line)
      .map((cell) => `<${tag}>${inline(cell, options)}</${tag}>`)
      .join('')}</tr>`
  return `<div class="table" tabindex="0"><table><thead>${row(head, 'th')}</thead><tbody>${rows.map((line) => row(line, 'td')).join('')}</tbody></table></div>`
}

/** `\|` belongs to its cell. */
function cellsOf(line: string): string[] {
  const cells = ['']
  for (let at = 1; at < line.trimEnd().length - 1; at++) {
    const sign = line[at] as string
    if (sign === '\\' && line[at + 1] === '|') {
      cells.push(`${cells.pop() ?? ''}|`)
      at += 1
    } else if (sign === '|') cells.push('')
    else cells.push(`${cells.pop() ?? ''}${sign}`)
  }
  return cells.map((cell) => cell.trim())
}

/** Code is taken first: nothing in it is markup. */
function inline(text: string, options: MarkdownOptions): string {
  const parts = text.split(/(`[^`]+`)/)
  const codes: string[] = []
  // A link may contain code, so code is put back when the links are made.
  const withoutCode = parts
    .map((part) =>
      part.startsWith('`') && part.length > 2 ? `\uE000${codes.push(part.slice(1, -1)) - 1}\uE000` : part,
    )
    .join('')
  const marked = escapeHtml(withoutCode)
    .replaceAll(/\[([^[\]]{1,300})\]\(([^()\s]{1,300})\)/g, (_all, label: string, target: string) => {
      const to = options.linkTo(target)
      return to === undefined ? label : `<a href="${escapeHtml(to)}">${label}</a>`
    })
    .replaceAll(/&lt;(https?:[^\s&]{1,300})&gt;/g, '<a href="$1">$1</a>')
    .replaceAll(/\*\*([^*]{1,500})\*\*/g, '<strong>$1</strong>')
    .replaceAll(/(^|[\s(])\*([^*\s][^*]{0,300})\*/g, '$1<em>$2</em>')
  return marked.replaceAll(
    /\uE000(\d{1,5})\uE000/g,
    (_all, at: string) => `<code>${escapeHtml(codes[Number(at)] ?? '')}</code>`,
  )
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

export const escapeHtml = (text: string) => text.replaceAll(/[&<>"']/g, (sign) => ENTITIES[sign] ?? sign)
