import { Dialog } from '../design/layers.tsx'
import { SECTIONS } from './navigation.ts'

const GENERAL: readonly (readonly [string, string])[] = [
  ['Ctrl K', 'Find anything'],
  ['/', 'Filter the list'],
  ['j  k', 'Move in a list'],
  ['Enter', 'Open'],
  ['x', 'Select'],
  ['Esc', 'Close'],
  ['?', 'These keys'],
]

export function ShortcutsDialog({ onClose }: { onClose: () => void }) {
  const jumps = SECTIONS.flatMap(({ links }) => links).map(({ key, name }): [string, string] => [`g  ${key}`, name])
  return (
    <Dialog title="Keys" kind="wide" onClose={onClose}>
      <div className="grid">
        {[GENERAL, jumps].map((rows, index) => (
          <dl key={index} className="facts half">
            {rows.map(([key, what]) => (
              <div key={key} style={{ display: 'contents' }}>
                <dt>
                  <kbd className="kbd">{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
        ))}
      </div>
    </Dialog>
  )
}
