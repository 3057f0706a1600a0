/** Splits a template into text and the tokens of actions. */
import { TemplateFault } from './syntax.ts'

export type Token = {
  kind: 'string' | 'number' | 'field' | 'dot' | 'variable' | 'word' | ':=' | '=' | '|' | '(' | ')' | ','
  text: string
  /** True after a blank: `.a.b` is one value, `.a .b` are two. */
  isApart: boolean
}

export type Piece = { kind: 'text'; text: string } | { kind: 'action'; tokens: Token[]; line: number }

/** Maximum number of tokens and pieces: the template is parsed for every request of a device. */
const MAX_TOKENS = 20_000

const OPEN = '{{'
const CLOSE = '}}'
const BLANKS = /[ \t\r\n]/

const TOKENS: readonly [Token['kind'], RegExp][] = [
  ['string', /"(?:[^"\\\n]|\\.)*"|`[^`]*`/y],
  ['number', /[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[^\w.]|$)/y],
  ['field', /\.[\p{L}_][\p{L}\p{N}_]*/uy],
  ['dot', /\./y],
  ['variable', /\$[\p{L}\p{N}_]*/uy],
  ['word', /[\p{L}_][\p{L}\p{N}_]*/uy],
  [':=', /:=/y],
  ['=', /=/y],
  ['|', /\|/y],
  ['(', /\(/y],
  [')', /\)/y],
  [',', /,/y],
]

/** Throws `TemplateFault`. `{{- ` and ` -}}` trim the blanks around an action; `{{/* … *\/}}` is a comment. */
export function piecesOf(template: string): Piece[] {
  const pieces: Piece[] = []
  let at = 0
  let line = 1
  let isTrimmed = false
  let tokens = 0
  let newline = template.indexOf('\n')
  const lineUpTo = (end: number) => {
    for (; newline >= 0 && newline < end; newline = template.indexOf('\n', newline + 1)) line++
    at = end
  }
  while (at < template.length) {
    const open = template.indexOf(OPEN, at)
    const end = open < 0 ? template.length : open
    const isTrimming = open >= 0 && template[open + 2] === '-' && BLANKS.test(template[open + 3] ?? '')
    const from = template.slice(at, end)
    const text = isTrimmed ? from.trimStart() : from
    const kept = isTrimming ? text.trimEnd() : text
    if (kept !== '') pieces.push({ kind: 'text', text: kept })
    lineUpTo(end)
    if (open < 0) break
    lineUpTo(open + (isTrimming ? 3 : 2))
    const action = isComment(template, at)
      ? skipComment(template, at, line)
      : readAction(template, at, line, MAX_TOKENS - tokens)
    tokens += 1 + (action.tokens?.length ?? 0)
    if (tokens > MAX_TOKENS) throw tooManyTokens(line)
    if (action.tokens !== undefined) pieces.push({ kind: 'action', tokens: action.tokens, line })
    isTrimmed = action.isTrimming
    lineUpTo(action.end)
  }
  return pieces
}

type Action = { tokens?: Token[]; end: number; isTrimming: boolean }

const COMMENT = /[ \t\r\n]*\/\*/y

function isComment(template: string, at: number): boolean {
  COMMENT.lastIndex = at
  return COMMENT.test(template)
}

function skipComment(template: string, at: number, line: number): Action {
  const end = template.indexOf('*/', at)
  const close = /[ \t\r\n]*(-?)\}\}/y
  close.lastIndex = end + 2
  const match = end < 0 ? null : close.exec(template)
  if (match === null) throw new TemplateFault('unclosed comment: it must end with */}}', line)
  return { end: close.lastIndex, isTrimming: match[1] === '-' }
}

function tooManyTokens(line: number): TemplateFault {
  return new TemplateFault(`the template is limited to ${MAX_TOKENS} tokens`, line)
}

function readAction(template: string, from: number, line: number, maxTokens: number): Action {
  const tokens: Token[] = []
  let at = from
  for (;;) {
    const start = at
    while (BLANKS.test(template[at] ?? '')) at++
    const isApart = at > start
    if (template.startsWith(CLOSE, at)) return { tokens, end: at + 2, isTrimming: false }
    if (isApart && template.startsWith(`-${CLOSE}`, at)) return { tokens, end: at + 3, isTrimming: true }
    const token = tokenAt(template, at)
    if (token === undefined) {
      const seen = template.slice(at, at + 1)
      throw new TemplateFault(
        seen === '' ? 'an action is not closed by }}' : `unexpected character "${seen}" in an action`,
        line,
      )
    }
    if (tokens.length >= maxTokens) throw tooManyTokens(line)
    tokens.push({ ...token, isApart })
    at += token.text.length
  }
}

function tokenAt(template: string, at: number): Omit<Token, 'isApart'> | undefined {
  for (const [kind, pattern] of TOKENS) {
    pattern.lastIndex = at
    const text = pattern.exec(template)?.[0]
    if (text !== undefined) return { kind, text }
  }
  return undefined
}
