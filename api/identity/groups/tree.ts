/** Nests the groups of a listing: each group in its parent if the listing contains it. */

export type Nested<T> = { item: T; children: Nested<T>[] }

/** Keeps the given order at the top and among the children of each group. */
export function nest<T extends { key: number; parentGroupKey: number | null }>(groups: readonly T[]): Nested<T>[] {
  const nodes = new Map<number, Nested<T>>(groups.map((item) => [item.key, { item, children: [] }]))
  const top: Nested<T>[] = []
  for (const node of nodes.values()) {
    const parent = node.item.parentGroupKey === null ? undefined : nodes.get(node.item.parentGroupKey)
    ;(parent?.children ?? top).push(node)
  }
  return top
}

/** Presents every node with `present`, and its `children` in the same way. */
export function presentTree<T, P extends object>(
  nodes: readonly Nested<T>[],
  present: (item: T) => P,
): (P & { children: unknown[] })[] {
  return nodes.map(({ item, children }) => ({ ...present(item), children: presentTree(children, present) }))
}
