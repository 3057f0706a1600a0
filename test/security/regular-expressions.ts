/** Finds every regular expression of a source file, and asks `recheck` whether some input makes it slow. */
import { createRequire } from 'node:module'
import { Visitor, parseSync } from 'oxc-parser'
import type * as Recheck from 'recheck'
import type { Expression } from 'oxc-parser'
import type { SourceFile } from '../architecture/source-imports.ts'

export type FoundExpression = {
  /** `core/time.ts:12` */
  readonly place: string
  readonly path: string
  readonly source: string
  readonly flags: string
}

/** An expression that is put together when the program runs, as it is written. */
export type ComputedExpression = { readonly place: string; readonly path: string; readonly text: string }

export type Found = { readonly expressions: FoundExpression[]; readonly computed: ComputedExpression[] }

/** What `recheck` may take for one expression; the slowest of the tree takes about 6 s. */
const CHECK_TIMEOUT_MS = 60_000

/** Whatever it finds by trying, it finds each time. */
const RANDOM_SEED = 1

// The build for browsers is the checker in JavaScript alone: it starts no process and no thread, and loads nothing.
const { checkSync } = createRequire(import.meta.url)('recheck/lib/browser.js') as typeof Recheck

/** Literals, `RegExp(…)`, and `pattern` of a schema. Throws when the file cannot be parsed. */
export function expressionsOf({ path, text }: SourceFile): Found {
  const { program, errors } = parseSync(path, text)
  if (errors.length > 0) throw new Error(`${path} cannot be parsed: ${errors[0]?.message}`)
  const expressions: FoundExpression[] = []
  const computed: ComputedExpression[] = []
  const placeOf = (start: number) => `${path}:${text.slice(0, start).split('\n').length}`
  const addSource = (node: Expression, flags: Expression | undefined) => {
    const source = textOf(node)
    const given = flags === undefined ? '' : textOf(flags)
    const place = placeOf(node.start)
    if (source === undefined || given === undefined) {
      if (!isLiteral(node)) computed.push({ place, path, text: text.slice(node.start, node.end) })
    } else expressions.push({ place, path, source, flags: given })
  }
  const addCall = (callee: Expression, values: readonly { type: string }[]) => {
    if (callee.type !== 'Identifier' || callee.name !== 'RegExp') return
    const [source, flags] = values as Expression[]
    if (source !== undefined) addSource(source, flags)
  }
  new Visitor({
    Literal(node) {
      if (!('regex' in node)) return
      const { pattern, flags } = node.regex
      expressions.push({ place: placeOf(node.start), path, source: pattern, flags })
    },
    NewExpression: ({ callee, arguments: values }) => addCall(callee, values),
    CallExpression: ({ callee, arguments: values }) => addCall(callee, values),
    Property({ key, value, shorthand }) {
      const name = key.type === 'Identifier' ? key.name : key.type === 'Literal' ? key.value : undefined
      if (name !== 'pattern' || shorthand || value.type !== 'Literal' || typeof value.value !== 'string') return
      // As validators compile it (JSON Schema, section 6.3.3).
      expressions.push({ place: placeOf(value.start), path, source: value.value, flags: 'u' })
    },
  }).visit(program)
  return { expressions, computed }
}

function textOf(node: Expression): string | undefined {
  if (node.type === 'Literal' && typeof node.value === 'string') return node.value
  if (node.type === 'TemplateLiteral' && node.expressions.length === 0) return node.quasis[0]?.value.cooked ?? undefined
  return undefined
}

const isLiteral = (node: Expression) => node.type === 'Literal' && 'regex' in node

/** Without a repetition the work for one place of the text is bounded by the expression itself. */
const REPEATS = /[*+{]/

/** What is wrong with an expression: that some input makes it slow, or that this could not be decided; undefined: nothing. */
export function describeSlowness({ source, flags }: Pick<FoundExpression, 'source' | 'flags'>): string | undefined {
  if (!REPEATS.test(source)) return undefined
  // A sticky expression is tried at one place of the text.
  const isSticky = flags.includes('y')
  const asked = isSticky ? `^(?:${source})` : source
  const found = checkSync(asked, flags.replace('y', ''), { timeout: CHECK_TIMEOUT_MS, randomSeed: RANDOM_SEED })
  if (found.status === 'safe') return undefined
  if (found.status === 'unknown') return `cannot be decided (${found.error.kind})`
  return `takes ${found.complexity.summary} time, for instance for ${found.attack.pattern}`
}
