/** Groups of a listing as a tree: each below its parent where the parent is in the listing too. */

export type Nested<T> = { item: T; children: Nested<T>[] }

/** Keeps the order given, among the top ones and among the children of each. */
export function nest<T extends { key: number; parentGroupKey: number | null }>(groups: readonly T[]): Nested<T>[] {
  const nodes = new Map<number, Nested<T>>(groups.map((item) => [item.key, { item, children: [] }]))
  const top: Nested<T>[] = []
  for (const node of nodes.values()) {
    const parent = node.item.parentGroupKey === null ? undefined : nodes.get(node.item.parentGroupKey)
    ;(parent?.children ?? top).push(node)
  }
  return top
}

/** Every node as `present` shows it, with its `children` in the same form. */
export function presentTree<T, P extends object>(
  nodes: readonly Nested<T>[],
  present: (item: T) => P,
): (P & { children: unknown[] })[] {
  return nodes.map(({ item, children }) => ({ ...present(item), children: presentTree(children, present) }))
}
