/** The tasks of a workflow in layers: a task stands right of everything it depends on. The table below says the same. */
import { stateWord } from '../../shell/task-state.tsx'

type Node = { id: string; name: string; state: number; depends_on?: string[]; run_if?: string }

const WIDTH = 150
const HEIGHT = 44
const GAP_X = 56
const GAP_Y = 16

export function WorkflowGraph({ tasks }: { tasks: readonly Node[] }) {
  const byName = new Map(tasks.map((task) => [task.name, task]))
  const layers = new Map<string, number>()
  const layerOf = (task: Node): number => {
    const known = layers.get(task.name)
    if (known !== undefined) return known
    // A cycle is refused by the server; this ends anyway.
    layers.set(task.name, 0)
    const before = (task.depends_on ?? []).flatMap((name) => byName.get(name) ?? [])
    const layer = before.length === 0 ? 0 : Math.max(...before.map((one) => layerOf(one))) + 1
    layers.set(task.name, layer)
    return layer
  }
  for (const task of tasks) layerOf(task)
  const counts = new Map<number, number>()
  const places = new Map(
    tasks.map((task) => {
      const layer = layers.get(task.name) ?? 0
      const row = counts.get(layer) ?? 0
      counts.set(layer, row + 1)
      return [task.name, { x: layer * (WIDTH + GAP_X) + 2, y: row * (HEIGHT + GAP_Y) + 2 }]
    }),
  )
  const width = (Math.max(0, ...layers.values()) + 1) * (WIDTH + GAP_X) - GAP_X + 4
  const height = Math.max(1, ...counts.values()) * (HEIGHT + GAP_Y) - GAP_Y + 4
  return (
    <div className="graph" tabIndex={0} role="region" aria-label="Graph of the workflow">
      <svg
        width={width}
        height={height}
        role="img"
        aria-label={`${tasks.length} tasks and what they depend on; the table says the same`}
      >
        {tasks.flatMap((task) =>
          (task.depends_on ?? []).flatMap((name) => {
            const from = places.get(name)
            const to = places.get(task.name)
            if (from === undefined || to === undefined) return []
            const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2]
            const bend = (x1 + x2) / 2
            return [
              <path
                key={`${name}-${task.name}`}
                className="edge"
                strokeDasharray={task.run_if === 'failure' ? '4 3' : undefined}
                d={`M${x1},${y1} C${bend},${y1} ${bend},${y2} ${x2},${y2}`}
              />,
            ]
          }),
        )}
        {tasks.map((task) => {
          const place = places.get(task.name) ?? { x: 0, y: 0 }
          return (
            <g key={task.id} transform={`translate(${place.x},${place.y})`}>
              <rect className="node" width={WIDTH} height={HEIGHT} rx="6" />
              <text x="10" y="18" fontWeight="600">
                {task.name.length > 20 ? `${task.name.slice(0, 19)}…` : task.name}
              </text>
              <text x="10" y="35">
                {stateWord(task.state)}
              </text>
            </g>
          )
        })}
      </svg>
    </div>
  )
}
