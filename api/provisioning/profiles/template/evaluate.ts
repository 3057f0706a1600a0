/**
 * Evaluates a template. It terminates: loops only iterate over existing values, and every step and every output
 * character is counted. Errors contain a place of the template, never a value.
 */
import { FUNCTIONS, callFunction, textOf, wellFormed } from './functions.ts'
import type { FunctionHelp } from './functions.ts'
import { JsonText } from './json-text.ts'
import type { Block, Expression, Node, Pipeline } from './syntax.ts'
import { TemplateFault } from './syntax.ts'
import { isExactInteger } from '#core/exact-integers.ts'
import { Missing, fieldOf, isList, isRecord, isTrue, keysOf } from './values.ts'
import type { Value } from './values.ts'

/** Maximum number of characters of the result. */
export const MAX_OUTPUT_CHARS = 262_144
/** Maximum number of evaluated nodes and expressions. */
const MAX_STEPS = 50_000
/** Maximum number of characters of all arguments and results of functions. */
const MAX_WORK_CHARS = 2_000_000

type Scope = Map<string, Value>

export type EvaluateOptions = {
  /** The result is JSON: values between quotation marks are escaped. */
  isJson: boolean
}

/** Throws `TemplateFault`. */
export function evaluate(nodes: readonly Node[], root: Value, options: EvaluateOptions): string {
  return new Evaluation(root, options).render(nodes)
}

/** One evaluation. The limits apply to all of its nodes together. */
class Evaluation {
  readonly #root: Value
  readonly #isJson: boolean
  readonly #json = new JsonText()
  readonly #output: string[] = []
  readonly #help: FunctionHelp = {
    fail: (message) => this.#fail(message),
    pay: (characters) => {
      this.#workedChars += characters
      if (this.#workedChars > MAX_WORK_CHARS) this.#fail('the template exceeds the limit of steps')
    },
  }
  #steps = 0
  #workedChars = 0
  #writtenChars = 0
  #line = 1

  constructor(root: Value, { isJson }: EvaluateOptions) {
    this.#root = root
    this.#isJson = isJson
  }

  render(nodes: readonly Node[]): string {
    this.#run(nodes, this.#root, [new Map()])
    return this.#output.join('')
  }

  #fail(message: string): never {
    throw new TemplateFault(message, this.#line)
  }

  #step(): void {
    this.#steps++
    if (this.#steps > MAX_STEPS) this.#fail('the template exceeds the limit of steps')
  }

  #write(text: string): void {
    this.#writtenChars += text.length
    if (this.#writtenChars > MAX_OUTPUT_CHARS) this.#fail(`the result is longer than ${MAX_OUTPUT_CHARS} characters`)
    this.#output.push(text)
    if (this.#isJson) this.#json.follow(text)
  }

  #run(list: readonly Node[], dot: Value, scopes: readonly Scope[]): void {
    for (const node of list) {
      this.#step()
      if (node.kind === 'text') this.#write(node.text)
      else {
        this.#line = node.pipeline.line
        if (node.kind === 'action') this.#act(node.pipeline, dot, scopes)
        else if (node.kind === 'range') this.#repeat(node, dot, [...scopes, new Map()])
        else {
          const inside = [...scopes, new Map<string, Value>()]
          const value = this.#declare(node.pipeline, dot, inside)
          if (isTrue(value)) this.#run(node.body, node.kind === 'with' ? value : dot, inside)
          else this.#run(node.otherwise, dot, inside)
        }
      }
    }
  }

  #act(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): void {
    const value = this.#declare(pipeline, dot, scopes)
    if (pipeline.declared.length > 0) return
    const text = wellFormed(textOf(value, this.#help), this.#help)
    this.#write(this.#isJson && this.#json.isInString ? JSON.stringify(text).slice(1, -1) : text)
  }

  #repeat(node: Block, dot: Value, scopes: readonly Scope[]): void {
    const { pipeline } = node
    const value = this.#valueOf(pipeline, dot, scopes)
    const entries = this.#entriesOf(value)
    const [one, other] = pipeline.declared
    for (const [key, element] of entries) {
      this.#step()
      const inside = [...scopes, new Map<string, Value>()]
      if (other !== undefined && one !== undefined) {
        this.#set(inside, one, key, pipeline.isNew)
        this.#set(inside, other, element, pipeline.isNew)
      } else if (one !== undefined) this.#set(inside, one, element, pipeline.isNew)
      this.#run(node.body, element, inside)
    }
    if (entries.length === 0) this.#run(node.otherwise, dot, scopes)
  }

  #entriesOf(value: Value): [Value, Value][] {
    if (isList(value)) return [...value.entries()].map(([at, one]) => [at, this.#exact(one, `element ${at}`)])
    // Sorted by key, as in Go, so that the result is deterministic.
    if (isRecord(value)) return keysOf(value).map((key) => [key, this.#exact(value[key] ?? null, key)])
    if (value === null || value instanceof Missing) return []
    return this.#fail('range requires a list or an object')
  }

  /** Returns the value of a pipeline and assigns it to its variable, if any. */
  #declare(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): Value {
    const value = this.#valueOf(pipeline, dot, scopes)
    const [name] = pipeline.declared
    if (name !== undefined) this.#set(scopes, name, value, pipeline.isNew)
    return value
  }

  #set(scopes: readonly Scope[], name: string, value: Value, isNew: boolean): void {
    const scope = isNew ? scopes.at(-1) : scopes.findLast((one) => one.has(name))
    if (scope === undefined) return this.#fail(`undefined variable ${name}`)
    scope.set(name, value)
  }

  #valueOf(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): Value {
    let piped: Value[] = []
    for (const [head, ...rest] of pipeline.commands) {
      this.#step()
      if (head === undefined) break
      if (head.kind === 'call') {
        const args = [...rest.map((one) => this.#read(one, dot, scopes)), ...piped]
        piped = [callFunction(head.name, args, this.#help)]
      } else piped = [this.#read(head, dot, scopes)]
    }
    return piped[0] ?? null
  }

  #read(expression: Expression, dot: Value, scopes: readonly Scope[]): Value {
    this.#step()
    switch (expression.kind) {
      case 'literal':
        return expression.value
      case 'dot':
        return this.#follow(dot, expression.fields, '')
      case 'variable':
        return this.#follow(this.#variable(expression.name, scopes), expression.fields, expression.name)
      case 'call':
        return FUNCTIONS[expression.name].least === 0
          ? callFunction(expression.name, [], this.#help)
          : this.#fail(`${expression.name} requires arguments: put the call in parentheses`)
      case 'pipeline':
        return this.#follow(this.#valueOf(expression.pipeline, dot, scopes), expression.fields, '(…)')
    }
  }

  #variable(name: string, scopes: readonly Scope[]): Value {
    if (name === '$') return this.#root
    const scope = scopes.findLast((one) => one.has(name))
    return scope === undefined ? this.#fail(`undefined variable ${name}`) : (scope.get(name) ?? null)
  }

  /** A template computes with numbers, which cannot be integers above 2^53. */
  #exact(value: Value, path: string): Value {
    return isExactInteger(value) ? this.#fail(`${path} is an integer above 2^53: store it as a text`) : value
  }

  #follow(value: Value, fields: readonly string[], from: string): Value {
    let [found, path] = [value, value instanceof Missing ? value.path : from]
    for (const name of fields) {
      this.#step()
      path = `${path}.${name}`
      if (!(found instanceof Missing) && found !== null && !isRecord(found))
        return this.#fail(`${path} does not exist: the value before it has no fields`)
      found = this.#exact(fieldOf(found, name, path), path)
    }
    return found
  }
}
