/** A module by drag and drop or from a dialog. */
import { useRef, useState } from 'react'
import { Button } from '../../design/controls.tsx'
import { formatBytes } from '../../design/display.tsx'
import { Icon } from '../../design/icon.tsx'

export function ModuleDrop({
  file,
  disabledReason,
  onFile,
}: {
  file: File | undefined
  /** Why no file is taken. */
  disabledReason?: string | undefined
  onFile: (file: File) => void
}) {
  const [isOver, setOver] = useState(false)
  const input = useRef<HTMLInputElement>(null)
  return (
    <div
      className={`drop ${isOver ? 'over' : ''}`}
      role="group"
      aria-label="Module"
      onDragOver={(event) => {
        event.preventDefault()
        setOver(true)
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setOver(false)
        const [dropped] = event.dataTransfer.files
        if (dropped !== undefined && disabledReason === undefined) onFile(dropped)
      }}
    >
      <Icon name={file === undefined ? 'module' : 'file'} size="large" />
      <div>
        {file === undefined ? 'Drop a WebAssembly module or component here' : `${file.name}, ${formatBytes(file.size)}`}
      </div>
      <Button disabledReason={disabledReason} onClick={() => input.current?.click()}>
        {file === undefined ? 'Choose a file' : 'Choose another'}
      </Button>
      <input
        ref={input}
        type="file"
        disabled={disabledReason !== undefined}
        accept=".wasm,application/wasm"
        className="visually-hidden"
        tabIndex={-1}
        aria-label="Module file"
        onChange={(event) => {
          const [chosen] = event.target.files ?? []
          if (chosen !== undefined) onFile(chosen)
        }}
      />
    </div>
  )
}
