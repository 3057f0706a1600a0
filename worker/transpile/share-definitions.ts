/**
 * Takes the definitions of a transpiled script out of the function that creates instances. The transpiler defines some fifty classes and
 * hundreds of functions again in every instance, and the engine learns each class again: nine tenths of a short call. Here they are
 * defined once; the function assigns the variables that they use, all of them, in the order of the script, so that an instance finds
 * nothing of the instance before it. Instances of one script must be used one after the other, and what an instance has deferred must not
 * run after the next one has begun: `guests/calls/component.ts` evaluates the script again after a call that has deferred anything or failed.
 */
import { parse } from 'acorn'
import type {
  AnyNode,
  ClassDeclaration,
  Expression,
  Function,
  ObjectPattern,
  Statement,
  VariableDeclarator,
} from 'acorn'

/** The function that creates instances, at the top of the script. */
const INSTANTIATE = 'instantiate'
/** Begins the names of its parameters; no script contains it. */
const GIVEN = '$given'

/** Returns the script unchanged if it has a form that is not known to be safe. `script`: statements, in strict mode. */
export function shareDefinitions(script: string): string {
  const { body } = parse(script, { ecmaVersion: 2026, sourceType: 'script' })
  const creator = body.find(
    (statement) => statement.type === 'FunctionDeclaration' && statement.id?.name === INSTANTIATE,
  )
  if (creator?.type !== 'FunctionDeclaration' || creator.async || creator.generator || script.includes(GIVEN))
    return script
  const parts = new Parts(script)
  for (const statement of creator.body.body) if (!parts.take(statement)) return script
  const parameters = parts.takeParameters(creator)
  if (parameters === undefined || parts.assignsToDefinitions(creator.body) || parts.isAsynchronous()) return script
  return [
    script.slice(0, creator.start),
    ...parts.definitions,
    `let ${parts.variables.join(', ')};`,
    `function ${INSTANTIATE}(${parameters.given.join(', ')}) {`,
    ...parameters.assignments,
    ...parts.steps,
    '}',
    script.slice(creator.end),
  ].join('\n')
}

class Parts {
  /** Classes and functions. */
  readonly definitions: string[] = []
  readonly variables: string[] = []
  /** What each instance does. */
  readonly steps: string[] = []
  readonly #defined = new Set<string>()
  readonly #classes = new Set<string>()
  /** Names of asynchronous functions. */
  readonly #asynchronous = new Set<string>()
  /** Statements that each instance runs. */
  readonly #own: AnyNode[] = []
  readonly #script: string

  constructor(script: string) {
    this.#script = script
  }

  /** False: its form is not known. */
  take(statement: Statement): boolean {
    switch (statement.type) {
      case 'FunctionDeclaration':
        this.#define(statement.id.name, this.#text(statement))
        if (statement.async) this.#asynchronous.add(statement.id.name)
        return true
      case 'ClassDeclaration':
        return this.#takeClass(statement)
      case 'VariableDeclaration':
        return statement.declarations.every((declarator) => this.#takeVariable(declarator))
      default:
        this.steps.push(this.#text(statement))
        this.#own.push(statement)
        return true
    }
  }

  /** The parameters become variables of the definitions. */
  takeParameters({ params }: Function): { given: string[]; assignments: string[] } | undefined {
    const given: string[] = []
    const assignments: string[] = []
    for (const [at, parameter] of params.entries()) {
      const target = parameter.type === 'AssignmentPattern' ? parameter.left : parameter
      if (target.type !== 'Identifier') return undefined
      this.variables.push(target.name)
      given.push(`${GIVEN}${at}`)
      const fallback = parameter.type === 'AssignmentPattern' ? this.#text(parameter.right) : 'undefined'
      assignments.push(`${target.name} = ${GIVEN}${at} === undefined ? ${fallback} : ${GIVEN}${at};`)
    }
    return { given, assignments }
  }

  /** Whether any code changes a shared definition, except a static field of a class, which each instance sets. */
  assignsToDefinitions(root: AnyNode): boolean {
    let isFound = false
    walk(root, (node) => {
      const target =
        node.type === 'AssignmentExpression' ? node.left : node.type === 'UpdateExpression' ? node.argument : undefined
      let root: AnyNode | undefined = target
      let depth = 0
      for (; root?.type === 'MemberExpression'; root = root.object) depth++
      if (root?.type !== 'Identifier' || !this.#defined.has(root.name)) return
      // `Class.field = …`; a prototype lies deeper.
      if (depth !== 1 || !this.#classes.has(root.name)) isFound = true
    })
    return isFound
  }

  /** Whether code of the component itself waits: what it leaves behind would meet the next instance. */
  isAsynchronous(): boolean {
    return this.#own.some((statement) => {
      let isFound = false
      walk(statement, (node) => {
        if (node.type === 'AwaitExpression') isFound = true
        if (node.type === 'Identifier') isFound ||= this.#asynchronous.has(node.name)
        if ('async' in node && node.async === true) isFound = true
      })
      return isFound
    })
  }

  #takeVariable({ id, init }: VariableDeclarator): boolean {
    if (id.type === 'ObjectPattern') return this.#takeImports(id, init)
    if (id.type !== 'Identifier') return false
    const { name } = id
    if (init?.type === 'ArrowFunctionExpression' || init?.type === 'FunctionExpression') {
      this.#define(name, `const ${name} = ${this.#text(init)};`)
      if (init.async) this.#asynchronous.add(name)
      return true
    }
    this.variables.push(name)
    if (init !== null && init !== undefined) this.#own.push(init)
    this.steps.push(`${name} = ${init === null || init === undefined ? 'undefined' : this.#text(init)};`)
    return true
  }

  /** `const { f, g: h } = imports['…']` */
  #takeImports(pattern: ObjectPattern, init: Expression | null | undefined): boolean {
    if (init === null || init === undefined) return false
    for (const property of pattern.properties) {
      if (property.type !== 'Property' || property.computed || property.value.type !== 'Identifier') return false
      this.variables.push(property.value.name)
    }
    this.#own.push(init)
    this.steps.push(`(${this.#text(pattern)} = ${this.#text(init)});`)
    return true
  }

  /** A class is defined once if it extends nothing of an instance. Its static fields are values of each instance. */
  #takeClass({ id, superClass, body, start, end }: ClassDeclaration): boolean {
    const { name } = id ?? {}
    if (name === undefined) return false
    const isBaseKnown =
      superClass === null ||
      superClass === undefined ||
      (superClass.type === 'Identifier' && (superClass.name === 'Error' || this.#classes.has(superClass.name)))
    if (!isBaseKnown) return false
    let text = ''
    let from = start
    const statics: string[] = []
    for (const member of body.body) {
      if (member.type === 'StaticBlock') return false
      if (member.type === 'MethodDefinition' && member.computed && !isSymbol(member.key)) return false
      if (member.type !== 'PropertyDefinition' || !member.static) continue
      if (member.computed || member.key.type !== 'Identifier' || member.value === null || member.value === undefined)
        return false
      statics.push(`${name}.${member.key.name} = ${this.#text(member.value)};`)
      text += this.#script.slice(from, member.start)
      from = member.end
    }
    this.#define(name, text + this.#script.slice(from, end))
    this.#classes.add(name)
    this.steps.push(...statics)
    return true
  }

  #define(name: string, text: string): void {
    this.#defined.add(name)
    this.definitions.push(text)
  }

  #text({ start, end }: { start: number; end: number }): string {
    return this.#script.slice(start, end)
  }
}

/** `[Symbol.dispose]` and the like. */
function isSymbol(key: AnyNode): boolean {
  return key.type === 'MemberExpression' && key.object.type === 'Identifier' && key.object.name === 'Symbol'
}

function walk(node: AnyNode, visit: (node: AnyNode) => void): void {
  const waiting: AnyNode[] = [node]
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    visit(next)
    for (const value of Object.values(next) as unknown[]) {
      for (const child of Array.isArray(value) ? (value as unknown[]) : [value]) {
        if (typeof child === 'object' && child !== null && 'type' in child) waiting.push(child as AnyNode)
      }
    }
  }
}
