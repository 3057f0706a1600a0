/**
 * Allow-list check of transpiled scripts: one immediately called function in strict mode, with the syntax that the
 * transpiler emits and only the globals that its scripts use. Names of a component become part of the script; if one of
 * them ever becomes code, the constructs that such code needs are refused here, before it is compiled.
 */
import { parse } from 'acorn'
import type { AnyNode, Expression, FunctionExpression, MemberExpression, Pattern, Program } from 'acorn'
import { ServiceError } from '#core/errors/index.ts'

/** Its syntax tree takes some fifty times as much memory. The script of a component of 12 MB has 130 kB. */
export const MAX_SCRIPT_CHARACTERS = 4 * 1024 * 1024

/**
 * The globals of component scripts, as test/security/guests/component-shapes.ts makes the transpiler emit them. A bare
 * global is its value, called or not.
 */
const GLOBALS: ReadonlySet<string> = new Set([
  'undefined',
  // Values.
  'Array',
  'Array.from',
  'Array.isArray',
  'BigInt',
  'BigInt.asIntN',
  'BigInt.asUintN',
  'Boolean',
  'JSON.stringify',
  'Map',
  'Math.max',
  'Math.min',
  'Math.random',
  'Number',
  'Number.isInteger',
  'Number.isNumber',
  'Number.isSafeInteger',
  'Object.assign',
  'Object.create',
  'Object.defineProperty',
  'Object.keys',
  'Object.prototype.hasOwnProperty',
  'Object.values',
  'Set',
  'String',
  'String.fromCharCode',
  'String.fromCharCode.apply',
  'String.fromCodePoint',
  'Symbol',
  'Symbol.dispose',
  'Symbol.for',
  // Bytes.
  'ArrayBuffer',
  'BigInt64Array',
  'BigUint64Array',
  'DataView',
  'Float32Array',
  'Float64Array',
  'Int16Array',
  'Int32Array',
  'Int8Array',
  'TextDecoder',
  'TextEncoder',
  'Uint16Array',
  'Uint32Array',
  'Uint8Array',
  // Errors and their details.
  'Error',
  'TypeError',
  'console.debug',
  'console.error',
  'globalThis.process.env.JCO_DEBUG',
  // Order and lifetime of asynchronous work.
  'FinalizationRegistry',
  'Promise',
  'Promise.resolve',
  'Promise.withResolvers',
  'clearInterval',
  'queueMicrotask',
  'setInterval',
  'setTimeout',
  // Core modules.
  'WebAssembly.Global',
  'WebAssembly.Instance',
  'WebAssembly.Module',
  'WebAssembly.RuntimeError',
  'WebAssembly.SuspendError',
  'WebAssembly.Suspending',
  'WebAssembly.promising',
  'globalThis.WebAssembly',
  'globalThis.WebAssembly.Global',
  // Mistakes of the transpiler in unreachable code: these names are not defined.
  'componentIdx',
  'rep',
  'vals',
])

/** The first names of `GLOBALS` with which scripts make or call something. A script that also declares one of them means both. */
const HIDEABLE: ReadonlySet<string> = new Set(
  [...GLOBALS].map((path) => path.split('.')[0] ?? '').filter((name) => /^[A-Z]/.test(name)),
)

/** Properties that lead from a value to its constructor. */
const REFUSED_PROPERTIES: ReadonlySet<string> = new Set([
  'constructor',
  '__proto__',
  '__defineGetter__',
  '__defineSetter__',
  '__lookupGetter__',
  '__lookupSetter__',
])

/** Throws `malformed` with the first construct that component scripts do not use. */
export function checkScript(script: string): void {
  if (script.length > MAX_SCRIPT_CHARACTERS) {
    throw refused(`its script has more than ${MAX_SCRIPT_CHARACTERS} characters`)
  }
  new ScriptCheck().check(functionOf(parseScript(script)))
}

function refused(why: string): ServiceError {
  return new ServiceError('malformed', why)
}

function parseScript(script: string): Program {
  try {
    return parse(script, { ecmaVersion: 2026, sourceType: 'script' })
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw refused(`a name in it cannot be used in the transpiled script, rename it: ${why.slice(0, 200)}`)
  }
}

/** The function of `(function () { 'use strict'; … })()`. */
function functionOf({ body }: Program): FunctionExpression {
  const [statement] = body
  const call = body.length === 1 && statement?.type === 'ExpressionStatement' ? statement.expression : undefined
  const callee = call?.type === 'CallExpression' && call.arguments.length === 0 ? call.callee : undefined
  if (callee?.type !== 'FunctionExpression' || callee.params.length > 0 || callee.async || callee.generator) {
    throw refused('its script is not one function that is called')
  }
  const [first] = callee.body.body
  if (first?.type !== 'ExpressionStatement' || first.directive !== 'use strict') {
    throw refused('its script is not in strict mode')
  }
  return callee
}

type Scope = { names: Set<string>; parent: Scope | undefined }
type AnyFunction = Extract<AnyNode, { type: 'FunctionDeclaration' | 'FunctionExpression' | 'ArrowFunctionExpression' }>

/** Node types that are checked only through their children. */
const PLAIN_FORMS: ReadonlySet<string> = new Set([
  'ArrayExpression',
  'AwaitExpression',
  'BinaryExpression',
  'CallExpression',
  'ChainExpression',
  'ClassBody',
  'ConditionalExpression',
  'DoWhileStatement',
  'EmptyStatement',
  'ExpressionStatement',
  'IfStatement',
  'LogicalExpression',
  'NewExpression',
  'ObjectExpression',
  'ReturnStatement',
  'SequenceExpression',
  'SpreadElement',
  'Super',
  'SwitchCase',
  'TemplateElement',
  'TemplateLiteral',
  'ThisExpression',
  'ThrowStatement',
  'TryStatement',
  'UnaryExpression',
  'WhileStatement',
  'YieldExpression',
])
/** Node types that are allowed as a computed property. */
const INDEX_FORMS: ReadonlySet<string> = new Set([
  'BinaryExpression',
  'Identifier',
  'Literal',
  'MemberExpression',
  'UpdateExpression',
])

class ScriptCheck {
  #scope: Scope | undefined

  check(root: FunctionExpression): void {
    this.#visit(root)
  }

  #visit(node: AnyNode): void {
    switch (node.type) {
      case 'Identifier':
        return this.#reference(node.name)
      case 'Literal':
        if (node.regex !== undefined) throw refusedForm('a regular expression')
        return
      case 'FunctionDeclaration':
      case 'FunctionExpression':
      case 'ArrowFunctionExpression':
        return this.#visitFunction(node)
      case 'ClassDeclaration':
      case 'ClassExpression':
        return this.#within(namesOf(node.id), () => {
          if (node.superClass) this.#visit(node.superClass)
          this.#visit(node.body)
        })
      case 'MethodDefinition':
      case 'PropertyDefinition':
        this.#visitKey(node, node.type === 'MethodDefinition' && node.kind === 'constructor')
        if (node.value) this.#visit(node.value)
        return
      case 'Property':
        this.#visitKey(node, false)
        return this.#visit(node.value)
      case 'BlockStatement':
        return this.#within(lexicalNames(node.body), () => this.#visitAll(node.body))
      case 'SwitchStatement':
        this.#visit(node.discriminant)
        return this.#within(lexicalNames(node.cases.flatMap(({ consequent }) => consequent)), () =>
          this.#visitAll(node.cases),
        )
      case 'ForStatement':
        return this.#within(lexicalNames([node.init]), () =>
          this.#visitAll([node.init, node.test, node.update, node.body]),
        )
      case 'ForOfStatement':
        return this.#within(lexicalNames([node.left]), () => {
          if (node.left.type === 'VariableDeclaration') this.#visit(node.left)
          else this.#visitTarget(node.left)
          this.#visitAll([node.right, node.body])
        })
      case 'CatchClause':
        return this.#within(namesOf(node.param), () => {
          if (node.param) this.#visitTarget(node.param)
          this.#visit(node.body)
        })
      case 'VariableDeclaration':
        for (const { id, init } of node.declarations) {
          this.#visitTarget(id)
          if (init) this.#visit(init)
        }
        return
      case 'AssignmentExpression':
        this.#visitTarget(node.left)
        return this.#visit(node.right)
      case 'UpdateExpression':
        return this.#visitTarget(node.argument as Pattern)
      case 'MemberExpression':
        return this.#visitMember(node)
      case 'LabeledStatement':
        return this.#visit(node.body)
      case 'BreakStatement':
      case 'ContinueStatement':
        return
      default:
        return this.#visitPlain(node)
    }
  }

  #visitPlain(node: AnyNode): void {
    if (node.type === 'MetaProperty') {
      if (node.meta.name !== 'new') throw refusedForm(`${node.meta.name}.${node.property.name}`)
      return
    }
    if (!PLAIN_FORMS.has(node.type)) throw refusedForm(node.type)
    if (node.type === 'NewExpression' || node.type === 'CallExpression') this.#refuseHidden(node.callee)
    this.#visitAll(childrenOf(node))
  }

  #visitAll(nodes: Iterable<AnyNode | null | undefined>): void {
    for (const node of nodes) if (node) this.#visit(node)
  }

  /** Default values see the parameters, but not declarations of the body. */
  #visitFunction(node: AnyFunction): void {
    const isArrow = node.type === 'ArrowFunctionExpression'
    const own = node.type === 'FunctionExpression' ? namesOf(node.id) : []
    const params = [...node.params.flatMap((param) => namesOf(param)), ...(isArrow ? [] : ['arguments'])]
    const { body } = node
    this.#within([...own, ...params], () => {
      for (const param of node.params) this.#visitTarget(param)
      if (body.type !== 'BlockStatement') return this.#visit(body)
      this.#within([...variableNames(body), ...lexicalNames(body.body)], () => this.#visitAll(body.body))
    })
  }

  /** Targets of assignments and declarations. Properties of globals must not be assigned. */
  #visitTarget(node: Pattern): void {
    switch (node.type) {
      case 'Identifier':
        if (!this.#isDeclared(node.name)) throw refusedForm(`an assignment to ${node.name}`)
        return
      case 'MemberExpression':
        this.#visitMember(node)
        if (this.#globalPath(node.object) !== undefined) throw refusedForm('an assignment to what a global holds')
        return
      case 'ObjectPattern':
        for (const property of node.properties) {
          if (property.type === 'RestElement') this.#visitTarget(property.argument)
          else {
            this.#visitKey(property, false)
            this.#visitTarget(property.value)
          }
        }
        return
      case 'ArrayPattern':
        for (const element of node.elements) if (element) this.#visitTarget(element)
        return
      case 'AssignmentPattern':
        this.#visitTarget(node.left)
        return this.#visit(node.right)
      case 'RestElement':
        return this.#visitTarget(node.argument)
    }
  }

  #visitMember(node: MemberExpression): void {
    if (node.computed) {
      const path = this.#globalPath(node.object)
      if (path !== undefined && typeof valueOf(node.property) !== 'number') {
        throw refusedForm(`a computed property of ${path}`)
      }
      this.#visit(node.object)
      return this.#visitIndex(node.property)
    }
    if (node.property.type === 'Identifier') requireProperty(node.property.name)
    const path = this.#globalPath(node)
    if (path === undefined) return this.#visit(node.object)
    if (!GLOBALS.has(path)) throw refusedForm(path)
  }

  #visitKey(node: { computed: boolean; key: AnyNode }, isConstructor: boolean): void {
    if (node.computed) return this.#visitIndex(node.key)
    if (isConstructor || node.key.type === 'PrivateIdentifier') return
    requireProperty(node.key.type === 'Identifier' ? node.key.name : valueOf(node.key))
  }

  #visitIndex(node: AnyNode): void {
    if (!INDEX_FORMS.has(node.type)) throw refusedForm(`a property computed by ${node.type}`)
    if (node.type === 'Literal') return requireProperty(valueOf(node))
    if (node.type === 'BinaryExpression' && [node.left, node.right].some(isText)) {
      throw refusedForm('a property computed from text')
    }
    this.#visit(node)
  }

  /** `Object.keys` for a chain of plain properties that begins with a global; undefined for anything else. */
  #globalPath(node: AnyNode): string | undefined {
    if (node.type === 'Identifier') return this.#isDeclared(node.name) ? undefined : node.name
    if (node.type !== 'MemberExpression' || node.computed || node.property.type !== 'Identifier') return undefined
    const object = this.#globalPath(node.object)
    return object === undefined ? undefined : `${object}.${node.property.name}`
  }

  /** A resource becomes a class of its name; what the script makes or calls is what the name meant before. */
  #refuseHidden(callee: AnyNode): void {
    const path = pathOf(callee)
    const [name = ''] = path.split('.')
    if (!GLOBALS.has(path) || !HIDEABLE.has(name) || !this.#isDeclared(name)) return
    throw refused(`a name in it becomes ${name}, which the transpiled script needs for itself: rename it`)
  }

  #reference(name: string): void {
    if (!this.#isDeclared(name) && !GLOBALS.has(name)) throw refusedForm(name)
  }

  #isDeclared(name: string): boolean {
    for (let scope = this.#scope; scope !== undefined; scope = scope.parent) if (scope.names.has(name)) return true
    return false
  }

  #within(names: Iterable<string>, visit: () => void): void {
    const outer = this.#scope
    this.#scope = { names: new Set(names), parent: outer }
    visit()
    this.#scope = outer
  }
}

/** `Object.keys` for a chain of plain properties; empty for anything else. */
function pathOf(node: AnyNode): string {
  if (node.type === 'Identifier') return node.name
  if (node.type !== 'MemberExpression' || node.computed || node.property.type !== 'Identifier') return ''
  return `${pathOf(node.object)}.${node.property.name}`
}

function requireProperty(name: unknown): void {
  if (typeof name === 'string' && REFUSED_PROPERTIES.has(name)) throw refusedForm(`the property ${name}`)
}

function valueOf(node: AnyNode): unknown {
  return node.type === 'Literal' ? node.value : undefined
}

function isText(node: AnyNode): boolean {
  return typeof valueOf(node) === 'string' || node.type === 'TemplateLiteral'
}

function refusedForm(what: string): ServiceError {
  return refused(`its script uses ${what}, which scripts of components do not`)
}

/** Names that a pattern declares. */
function namesOf(node: Pattern | Expression | null | undefined): string[] {
  switch (node?.type) {
    case 'Identifier':
      return [node.name]
    case 'ObjectPattern':
      return node.properties.flatMap((property) =>
        namesOf(property.type === 'RestElement' ? property.argument : property.value),
      )
    case 'ArrayPattern':
      return node.elements.flatMap((element) => namesOf(element))
    case 'AssignmentPattern':
      return namesOf(node.left)
    case 'RestElement':
      return namesOf(node.argument)
    default:
      return []
  }
}

/** Names that `let`, `const`, `class` and `function` declare in a block, without `var`. */
function lexicalNames(statements: readonly (AnyNode | null | undefined)[]): string[] {
  return statements.flatMap((statement) => {
    if (statement?.type === 'FunctionDeclaration' || statement?.type === 'ClassDeclaration')
      return namesOf(statement.id)
    if (statement?.type !== 'VariableDeclaration' || statement.kind === 'var') return []
    return statement.declarations.flatMap(({ id }) => namesOf(id))
  })
}

/** Names that `var` declares in a function, without nested functions. */
function variableNames(node: AnyNode): string[] {
  if (node.type === 'VariableDeclaration' && node.kind === 'var')
    return node.declarations.flatMap(({ id }) => namesOf(id))
  const inner = childrenOf(node).filter(({ type }) => !/^(Function|ArrowFunction|Class)/.test(type))
  return inner.flatMap((child) => variableNames(child))
}

function childrenOf(node: AnyNode): AnyNode[] {
  const isNode = (value: unknown): value is AnyNode => typeof value === 'object' && value !== null && 'type' in value
  return Object.values(node).flatMap((value: unknown) =>
    Array.isArray(value) ? value.filter(isNode) : isNode(value) ? [value] : [],
  )
}
