/**
 * The syntax tree of the library, as far as the limits of this folder need it. Its declarations name neither the type of a node nor what a
 * node is replaced by, so they stand here; the version of the library is exact, and the tests would notice a change.
 */

export type Evaluate = (evaluator: unknown, node: unknown, context: unknown) => unknown
type Check = (checker: Checker, node: SyntaxNode, context: unknown) => CheckedType
export type CheckedType = {
  readonly hasDynType: boolean
  readonly kind: string
  readonly name: string
  readonly valueType?: CheckedType | undefined
}
export type Checker = {
  check(node: SyntaxNode, context: unknown): CheckedType
  getType(name: string): CheckedType
  createError(code: string, message: string, node: SyntaxNode): Error
}
export type Evaluator = { run(node: SyntaxNode, context: unknown): unknown }

export type SyntaxNode = {
  readonly op: string
  readonly args: unknown
  readonly start: number
  readonly checkedType?: CheckedType
  readonly meta: { evaluate: Evaluate; check: Check; alternate?: SyntaxNode; macro?: unknown }
  setMeta(key: 'evaluate', value: Evaluate): void
  setMeta(key: 'check', value: Check): void
}

export type Call = { name: string; receiver: SyntaxNode | undefined; args: readonly SyntaxNode[] }

/** The parts of a call, `f(x)` or `x.f(y)`; undefined for other nodes. */
export function callOf(node: SyntaxNode): Call | undefined {
  if (node.op === 'call') {
    const [name, args] = node.args as [string, SyntaxNode[]]
    return { name, receiver: undefined, args }
  }
  if (node.op !== 'rcall') return undefined
  const [name, receiver, args] = node.args as [string, SyntaxNode, SyntaxNode[]]
  return { name, receiver, args }
}

/** The nodes below a node, from the left. */
export function childrenOf(node: SyntaxNode): readonly SyntaxNode[] {
  const call = callOf(node)
  if (call !== undefined) return call.receiver === undefined ? call.args : [call.receiver, ...call.args]
  switch (node.op) {
    case 'value':
    case 'id':
      return []
    case '.':
      return [(node.args as [SyntaxNode])[0]]
    case 'map':
      return (node.args as SyntaxNode[][]).flat()
    case '!_':
    case '-_':
      return [node.args as SyntaxNode]
    default:
      return node.args as SyntaxNode[]
  }
}
