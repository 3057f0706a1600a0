/**
 * Fills a template in. It ends: there are no loops but over values that are there, and every step and every character that is
 * made is counted. What it fails with names a place of the template, never a value.
 */
import { FUNCTIONS, callFunction, textOf, wellFormed } from './functions.ts'
import type { FunctionHelp } from './functions.ts'
import { JsonText } from './json-text.ts'
import type { Block, Expression, Node, Pipeline } from './syntax.ts'
import { TemplateFault } from './syntax.ts'
import { Missing, fieldOf, isList, isRecord, isTrue, keysOf } from './values.ts'
import type { Value } from './values.ts'

/** Characters of a filled-in template. */
export const MAX_OUTPUT_CHARS = 262_144
/** Nodes and expressions that are evaluated. */
const MAX_STEPS = 50_000
/** Characters that functions are given and make. */
const MAX_WORK_CHARS = 2_000_000

type Scope = Map<string, Value>

export type EvaluateOptions = {
  /** The text becomes JSON: what is put between its quotation marks is escaped. */
  isJson: boolean
}

/** Throws `TemplateFault`. */
export function evaluate(nodes: readonly Node[], root: Value, { isJson }: EvaluateOptions): string {
  const output: string[] = []
  const json = new JsonText()
  let [steps, worked, written] = [0, 0, 0]
  let line = 1

  const fail = (message: string): never => {
    throw new TemplateFault(message, line)
  }
  const help: FunctionHelp = {
    fail,
    pay(characters) {
      worked += characters
      if (worked > MAX_WORK_CHARS) fail('the template does too much')
    },
  }
  const step = () => {
    steps++
    if (steps > MAX_STEPS) fail('the template does too much')
  }
  const write = (text: string) => {
    written += text.length
    if (written > MAX_OUTPUT_CHARS) fail(`the result is longer than ${MAX_OUTPUT_CHARS} characters`)
    output.push(text)
    if (isJson) json.follow(text)
  }

  function run(list: readonly Node[], dot: Value, scopes: readonly Scope[]): void {
    for (const node of list) {
      step()
      if (node.kind === 'text') write(node.text)
      else {
        line = node.pipeline.line
        if (node.kind === 'action') act(node.pipeline, dot, scopes)
        else if (node.kind === 'range') repeat(node, dot, [...scopes, new Map()])
        else {
          const inside = [...scopes, new Map<string, Value>()]
          const value = declare(node.pipeline, dot, inside)
          if (isTrue(value)) run(node.body, node.kind === 'with' ? value : dot, inside)
          else run(node.otherwise, dot, inside)
        }
      }
    }
  }

  function act(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): void {
    const value = declare(pipeline, dot, scopes)
    if (pipeline.declared.length > 0) return
    const text = wellFormed(textOf(value, help), help)
    write(isJson && json.isInString ? JSON.stringify(text).slice(1, -1) : text)
  }

  function repeat(node: Block, dot: Value, scopes: readonly Scope[]): void {
    const { pipeline } = node
    const value = valueOf(pipeline, dot, scopes)
    const entries = entriesOf(value)
    const [one, other] = pipeline.declared
    for (const [key, element] of entries) {
      step()
      const inside = [...scopes, new Map<string, Value>()]
      if (other !== undefined && one !== undefined) {
        set(inside, one, key, pipeline.isNew)
        set(inside, other, element, pipeline.isNew)
      } else if (one !== undefined) set(inside, one, element, pipeline.isNew)
      run(node.body, element, inside)
    }
    if (entries.length === 0) run(node.otherwise, dot, scopes)
  }

  function entriesOf(value: Value): [Value, Value][] {
    if (isList(value)) return [...value.entries()]
    // In the order of the keys, as Go has it: the same values give the same text.
    if (isRecord(value)) return keysOf(value).map((key) => [key, value[key] ?? null])
    if (value === null || value instanceof Missing) return []
    return fail('range takes a list or an object')
  }

  /** The value of a pipeline, put into its variable where it has one. */
  function declare(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): Value {
    const value = valueOf(pipeline, dot, scopes)
    const [name] = pipeline.declared
    if (name !== undefined) set(scopes, name, value, pipeline.isNew)
    return value
  }

  function set(scopes: readonly Scope[], name: string, value: Value, isNew: boolean): void {
    const scope = isNew ? scopes.at(-1) : scopes.findLast((one) => one.has(name))
    if (scope === undefined) return fail(`there is no variable ${name}`)
    scope.set(name, value)
  }

  function valueOf(pipeline: Pipeline, dot: Value, scopes: readonly Scope[]): Value {
    let piped: Value[] = []
    for (const [head, ...rest] of pipeline.commands) {
      step()
      if (head === undefined) break
      if (head.kind === 'call') {
        const args = [...rest.map((one) => read(one, dot, scopes)), ...piped]
        piped = [callFunction(head.name, args, help)]
      } else piped = [read(head, dot, scopes)]
    }
    return piped[0] ?? null
  }

  function read(expression: Expression, dot: Value, scopes: readonly Scope[]): Value {
    step()
    switch (expression.kind) {
      case 'literal':
        return expression.value
      case 'dot':
        return follow(dot, expression.fields, '')
      case 'variable':
        return follow(variable(expression.name, scopes), expression.fields, expression.name)
      case 'call':
        return FUNCTIONS[expression.name].least === 0
          ? callFunction(expression.name, [], help)
          : fail(`${expression.name} needs arguments: put parentheses around it`)
      case 'pipeline':
        return follow(valueOf(expression.pipeline, dot, scopes), expression.fields, '(…)')
    }
  }

  function variable(name: string, scopes: readonly Scope[]): Value {
    if (name === '$') return root
    const scope = scopes.findLast((one) => one.has(name))
    return scope === undefined ? fail(`there is no variable ${name}`) : (scope.get(name) ?? null)
  }

  function follow(value: Value, fields: readonly string[], from: string): Value {
    let [found, path] = [value, value instanceof Missing ? value.path : from]
    for (const name of fields) {
      step()
      path = `${path}.${name}`
      if (!(found instanceof Missing) && found !== null && !isRecord(found))
        return fail(`${path} cannot be: what stands before has no fields`)
      found = fieldOf(found, name, path)
    }
    return found
  }

  run(nodes, root, [new Map()])
  return output.join('')
}
