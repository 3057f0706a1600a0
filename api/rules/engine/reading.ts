/**
 * What the library accepts and an expression may not say. A tree is read before its types are checked, because the check follows names and makes
 * types that the library keeps.
 */
import { nearestName } from '#core/nearest.ts'
import { COMPREHENSIONS, FUNCTIONS } from './language.ts'
import { callOf, childrenOf } from './syntax-tree.ts'
import type { SyntaxNode } from './syntax-tree.ts'
import { textFormOf } from './text-forms.ts'
import { VARIABLE_TYPES } from './variables.ts'

/** Functions such as `all` inside each other: the work of two grows with the square of a list, of three with its cube. */
export const MAX_COMPREHENSION_DEPTH = 2
/** Lists and maps inside each other: the library keeps each type that it has seen, and there are twice as many with each level. */
export const MAX_NESTED_TYPES = 3

const MAX_INT = 2n ** 63n - 1n

/** Names through which JavaScript leads from a value to the program. The library does not follow them; a rule has no use for them. */
const PROTOTYPE_NAMES: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype'])
/** Names of types, for comparisons with `type(value)`. */
const TYPE_NAMES: ReadonlySet<string> = new Set(['bool', 'int', 'double', 'string', 'list', 'map', 'null_type', 'type'])

/** Functions of the language or of the library that are refused, with what to write instead. */
const REFUSED_FUNCTIONS: Readonly<Record<string, string>> = {
  matches: 'regular expressions are not accepted; use startsWith, endsWith, contains or split',
  uint: 'unsigned integers are not accepted; use int(value)',
  bytes: 'bytes are not accepted; use texts',
  ...Object.fromEntries(
    [
      'getHours',
      'getMinutes',
      'getDayOfWeek',
      'getDayOfMonth',
      'getDate',
      'getMonth',
      'getFullYear',
      'getDayOfYear',
    ].map((name) => [
      name,
      'parts of a time need a time zone: hour(time, "Europe/Berlin"), minute, weekday, day, month, year',
    ]),
  ),
  ...Object.fromEntries(
    ['getSeconds', 'getMilliseconds'].map((name) => [
      name,
      'compare durations with durations: time - other > duration("5m")',
    ]),
  ),
}

export type Refusal = { at: number; sentence: string }

/** The first thing that is refused, with the names of the variables that the tree uses. */
export class Reading {
  readonly variables = new Set<string>()
  refusal: Refusal | undefined
  readonly #items: string[] = []
  #comprehensions = 0

  refuse(node: SyntaxNode, sentence: string): void {
    this.refusal ??= { at: node.start, sentence }
  }

  /** Reads a whole tree. */
  readTree(tree: SyntaxNode): void {
    this.#read(tree)
    if (this.refusal === undefined) this.#nestingOf(tree, new Map())
  }

  #read(node: SyntaxNode, parent?: SyntaxNode): void {
    if (this.refusal !== undefined) return
    if (node.op === 'value') return this.#readLiteral(node, parent)
    if (node.op === 'id') return this.#readName(node)
    const call = callOf(node)
    if (call !== undefined && COMPREHENSIONS.has(call.name) && call.receiver !== undefined) {
      return this.#readComprehension(node, call.receiver, call.args)
    }
    if (call !== undefined) this.#readCall(node, call.name, call.args)
    else if (node.op === '.' || node.op === '[]') this.#readAccess(node)
    else if (node.op === 'map') this.#readMap(node)
    else if (node.op === 'in') acceptMixedNumbers(node)
    for (const child of childrenOf(node)) this.#read(child, node)
  }

  #readLiteral(node: SyntaxNode, parent: SyntaxNode | undefined): void {
    const value = node.args
    if (typeof value === 'bigint') {
      // The smallest integer is the negation of a number that is no integer itself.
      if (value > (parent?.op === '-_' ? MAX_INT + 1n : MAX_INT)) {
        this.refuse(
          node,
          'an integer must be between -9223372036854775808 and 9223372036854775807; write 1.0e19 for a larger number',
        )
      }
    } else if (value instanceof Uint8Array) this.refuse(node, REFUSED_FUNCTIONS['bytes'] as string)
    else if (typeof value === 'object' && value !== null)
      this.refuse(node, 'unsigned integers are not accepted; write 1 instead of 1u')
  }

  #readName(node: SyntaxNode): void {
    const name = node.args as string
    if (this.#items.includes(name) || TYPE_NAMES.has(name)) return
    if (Object.hasOwn(VARIABLE_TYPES, name)) this.variables.add(name)
    else
      this.refuse(
        node,
        `there is no name ${name}${suggest(name, Object.keys(VARIABLE_TYPES))}; the names are ${Object.keys(VARIABLE_TYPES).join(', ')}`,
      )
  }

  #readCall(node: SyntaxNode, name: string, args: readonly SyntaxNode[]): void {
    if (Object.hasOwn(FUNCTIONS, name)) {
      const [text] = args
      const accepts = textFormOf(name)
      if (accepts === undefined || text?.op !== 'value' || typeof text.args !== 'string' || accepts(text.args)) return
      return this.refuse(text, `${name}() cannot read the text ${text.args}; write ${FUNCTIONS[name]}`)
    }
    const refused = Object.hasOwn(REFUSED_FUNCTIONS, name) ? REFUSED_FUNCTIONS[name] : undefined
    const names = Object.keys(FUNCTIONS)
    this.refuse(
      node,
      refused ?? `there is no function ${name}${suggest(name, names)}; the functions are ${names.join(', ')}`,
    )
  }

  #readAccess(node: SyntaxNode): void {
    const [left, right] = node.args as [SyntaxNode, string | SyntaxNode]
    const key = typeof right === 'string' ? right : right.op === 'value' ? right.args : undefined
    if (typeof key === 'string' && PROTOTYPE_NAMES.has(key)) this.refuse(node, `a field must not be named ${key}`)
    const isClient = left.op === 'id' && left.args === 'client' && !this.#items.includes('client')
    if (isClient && key === undefined)
      this.refuse(node, 'a field of client must be named: client.id, client.name, client.tags or client.metadata')
  }

  #readMap(node: SyntaxNode): void {
    const keys = new Set<unknown>()
    for (const [key] of node.args as [SyntaxNode, SyntaxNode][]) {
      if (key.op !== 'value' || typeof key.args !== 'string')
        return this.refuse(key, 'a key of a map must be a text in quotes')
      if (keys.has(key.args) || PROTOTYPE_NAMES.has(key.args))
        return this.refuse(key, `the key ${key.args} is used twice or not accepted`)
      keys.add(key.args)
    }
  }

  #readComprehension(node: SyntaxNode, receiver: SyntaxNode, args: readonly SyntaxNode[]): void {
    const isEmpty = (receiver.op === 'list' || receiver.op === 'map') && (receiver.args as unknown[]).length === 0
    if (isEmpty) return this.refuse(receiver, 'the list is empty, so the result is known without it')
    this.#read(receiver, node)
    const [item, ...bodies] = args
    // The library says what is wrong with a call that has no name for the item.
    if (item?.op !== 'id') return
    const name = item.args as string
    if (Object.hasOwn(VARIABLE_TYPES, name) || TYPE_NAMES.has(name) || this.#items.includes(name)) {
      return this.refuse(item, `the name of the item must differ from ${name}, which is a name already`)
    }
    if (this.#comprehensions === MAX_COMPREHENSION_DEPTH) {
      return this.refuse(
        node,
        `only ${MAX_COMPREHENSION_DEPTH} of ${[...COMPREHENSIONS].join(', ')} may stand inside each other`,
      )
    }
    this.#comprehensions++
    this.#items.push(name)
    for (const body of bodies) this.#read(body, node)
    this.#items.pop()
    this.#comprehensions--
  }

  /** How many lists and maps are inside each other in the value of a node, as far as its type says; 0 for values of JSON. */
  #nestingOf(node: SyntaxNode, items: ReadonlyMap<string, number>): number {
    const nesting = this.#nestingWithin(node, items)
    if (nesting > MAX_NESTED_TYPES)
      this.refuse(node, `at most ${MAX_NESTED_TYPES} lists and maps may be inside each other`)
    return nesting
  }

  #nestingWithin(node: SyntaxNode, items: ReadonlyMap<string, number>): number {
    if (node.op === 'id') return items.get(node.args as string) ?? 0
    const call = callOf(node)
    if (call?.receiver !== undefined && COMPREHENSIONS.has(call.name)) {
      const range = this.#nestingOf(call.receiver, items)
      const [item, ...bodies] = call.args
      const within = new Map([...items, [item?.args as string, Math.max(range - 1, 0)]])
      const results = bodies.map((body) => this.#nestingOf(body, within))
      if (call.name === 'map') return 1 + (results.at(-1) ?? 0)
      return call.name === 'filter' ? range : 0
    }
    const below = Math.max(0, ...childrenOf(node).map((child) => this.#nestingOf(child, items)))
    if (call !== undefined) return call.name === 'split' ? 1 : call.name === 'dyn' ? below : 0
    switch (node.op) {
      case 'list':
      case 'map':
        return below + 1
      case '.':
        // The tags and the metadata of a client.
        return isClientField(node) ? 1 : Math.max(below - 1, 0)
      case '[]':
        return Math.max(below - 1, 0)
      case '+':
      case '?:':
        return below
      default:
        return 0
    }
  }
}

const isClientField = ({ args }: SyntaxNode): boolean => {
  const [left] = args as [SyntaxNode]
  return left.op === 'id' && left.args === 'client'
}

function suggest(name: string, names: readonly string[]): string {
  const nearest = nearestName(name, names)
  return nearest === undefined ? '' : `; did you mean ${nearest}?`
}

/** A list of numbers on the right of `in` is compared with integers and doubles: `value in [1, 2.5]`. */
function acceptMixedNumbers(node: SyntaxNode): void {
  const list = (node.args as SyntaxNode[])[1]
  if (list?.op !== 'list' || (list.args as unknown[]).length === 0) return
  const { check } = list.meta
  list.setMeta('check', (checker, self, context) => {
    const type = check(checker, self, context)
    const isNumeric = type.valueType?.name === 'int' || type.valueType?.name === 'double'
    return isNumeric ? checker.getType('list<dyn>') : type
  })
}
