;; Encodes lines for the json-file driver, sixteen bytes at a time, up to the first byte that must not be copied as it
;; is. Source, suffix and output are in the memory. It may read behind the source, but takes nothing of that.
;; scripts/make-wasm.mjs makes simple-lines-code.ts of this.
(module
  (memory (export "memory") 4)
  ;; Behind the last whole record.
  (global $end (export "end") (mut i32) (i32.const 0))

  ;; Takes the lines from $at on. Returns where the first one that is not encoded begins: it is not complete, has
  ;; $most_bytes or more, or a special byte, or the output has come to $limit.
  (func (export "encode")
    (param $at i32) (param $size i32) (param $out i32) (param $limit i32)
    (param $suffix i32) (param $suffix_length i32) (param $most_bytes i32)
    (result i32)
    (local $line i32) (local $bytes v128) (local $special i32) (local $count i32)
    (local.set $line (local.get $at))
    (global.set $end (local.get $out))
    ;; {"log":" with its first byte lowest
    (i64.store (local.get $out) (i64.const 0x223a22676f6c227b))
    (local.set $out (i32.add (local.get $out) (i32.const 8)))
    (loop $next
      (local.set $bytes (v128.load (local.get $at)))
      (v128.store (local.get $out) (local.get $bytes))
      ;; Below a space, or above 127 as these are negative; a backslash; < or >; " or &.
      (local.set $special
        (i8x16.bitmask
          (v128.or
            (v128.or
              (i8x16.lt_s (local.get $bytes) (i8x16.splat (i32.const 0x20)))
              (i8x16.eq (local.get $bytes) (i8x16.splat (i32.const 0x5c))))
            (v128.or
              (i8x16.eq
                (v128.or (local.get $bytes) (i8x16.splat (i32.const 2)))
                (i8x16.splat (i32.const 0x3e)))
              (i8x16.eq
                (v128.or (local.get $bytes) (i8x16.splat (i32.const 4)))
                (i8x16.splat (i32.const 0x26)))))))
      (if (i32.eqz (local.get $special))
        (then
          (local.set $at (i32.add (local.get $at) (i32.const 16)))
          (local.set $out (i32.add (local.get $out) (i32.const 16)))
          ;; A line that is too long would leave the output.
          (br_if $next (i32.lt_u (i32.sub (local.get $at) (local.get $line)) (local.get $most_bytes)))
          (return (local.get $line))))
      (local.set $count (i32.ctz (local.get $special)))
      (local.set $at (i32.add (local.get $at) (local.get $count)))
      (local.set $out (i32.add (local.get $out) (local.get $count)))
      (if (i32.ge_u (local.get $at) (local.get $size)) (then (return (local.get $line))))
      (if (i32.ne (i32.load8_u (local.get $at)) (i32.const 10)) (then (return (local.get $line))))
      (if (i32.ge_u (i32.sub (local.get $at) (local.get $line)) (local.get $most_bytes))
        (then (return (local.get $line))))
      (local.set $count (i32.const 0))
      (loop $more
        (v128.store
          (i32.add (local.get $out) (local.get $count))
          (v128.load (i32.add (local.get $suffix) (local.get $count))))
        (local.set $count (i32.add (local.get $count) (i32.const 16)))
        (br_if $more (i32.lt_u (local.get $count) (local.get $suffix_length))))
      (local.set $out (i32.add (local.get $out) (local.get $suffix_length)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (local.set $line (local.get $at))
      (global.set $end (local.get $out))
      (if (i32.ge_u (local.get $at) (local.get $size)) (then (return (local.get $line))))
      (if (i32.ge_u (local.get $out) (local.get $limit)) (then (return (local.get $line))))
      (i64.store (local.get $out) (i64.const 0x223a22676f6c227b))
      (local.set $out (i32.add (local.get $out) (i32.const 8)))
      (br $next))
    (unreachable)))
