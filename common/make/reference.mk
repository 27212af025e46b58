# The reference of the virtual H200: `make bench DEVICE=vgpu`. Included by the Makefile for the virtual H200;
# common/workshop/bench/README.md says what the results are for.
#
# Predicted times, limits and counters of all chapters come from the runs of make docs; what each step gains
# at sizes that matter, times and memory over batch and size, and what lessons quote, from the runs below.
# CHECK=1 compares with the committed reference; otherwise the results are the new reference.

# $(call sized,NAME,CHAPTER,FLAGS): $T/docs/sized-NAME.json. Only the blocks that a prediction needs are
# executed, so these sizes take seconds. $(call sweep,...): sweep-NAME.json, a point of a sweep over sizes.
# $(call quoted,...): quoted-NAME.json, of which a lesson's prose speaks, at a size that none of these has.
sized_results :=
sweep_results :=
quoted_results :=
predicted = $(eval $1 += $T/docs/$2.json)$(eval $(call result_rule,$2,$3,$4 --predict))
sized = $(call predicted,sized_results,sized-$1,$2,$3)
sweep = $(call predicted,sweep_results,sweep-$1,$2,$3)
quoted = $(call predicted,quoted_results,quoted-$1,$2,$3)

attention := --batch 32 --tokens 577
deep := --preset deep --precision tf32$(comma)fp16 --storage fp16
$(call sized,first-kernel,0,--size 2048)
$(call sized,first-kernel-serial,0,--size 2048 --step 'sum serial')
$(foreach n,$(filter 1 2 3 4 5 6 13 14,$(chapters)),$(call sized,attention-$n,$n,$(attention)))
$(foreach d,local uniform,$(call sized,deformable-$d,7,--distribution $d --heads 8))
$(call sized,convolution-photo,8)
$(call sized,convolution-deep,8,$(deep))
$(call sized,layer-norm,10,--batch 32)
$(call sized,mlp,11,--batch 32)
# What was tried and not kept, which runs only by name. $(call tried,NAME,CHAPTER,FLAGS,STEPS): NAME-STEP each
tried = $(foreach s,$4,$(call sized,$1-$s,$2,$3 --step '$(subst -, ,$s)'))
$(call tried,attention-1,1,$(attention),swapped-lanes)
$(call tried,attention-2,2,$(attention),two-passes)
$(call tried,attention-3,3,$(attention),no-padding)
$(call tried,attention-4,4,$(attention),4-loads-at-a-time)
$(call tried,attention-5,5,$(attention),16-warps 24-resident)
$(call tried,attention-6,6,$(attention),no-padding)
$(foreach d,local uniform,$(call tried,deformable-$d,7,--distribution $d --heads 8,even-shares single-copies))
$(call tried,convolution-photo,8,,two-passes)
$(call tried,convolution-deep,8,$(deep),two-passes)
$(call tried,attention-13,13,$(attention),small-tiles)
$(call tried,attention-14,14,$(attention),one-block no-turns polynomials every-maximum multicast head-by-head)
$(call tried,mlp,11,--batch 32,copies-first no-padding)
$(call sized,gradients,15,--batch 32 --tokens 197)
$(foreach d,local uniform,$(call sized,deformable-gradients-$d,19,--preset small --distribution $d))
$(foreach s,1 2 3,$(call sized,cvt-projection-$s,16,--component projection --preset cvt13-$s))
$(foreach c,linear attention embedding,$(call sized,cvt-$c,16,--component $c --preset cvt13-1))
# Chapter 12's net: attention's first step and its last, the best steps around it, and qkv by heads.
fast_net := --embed one_product --norm rows --mlp epilogue
$(call sized,vit-0,12,--batch 32 --attention naive)
$(call sized,vit-1,12,--batch 32)
$(call sized,vit-2,12,--batch 32 $(fast_net))
$(call sized,vit-3,12,--batch 32 $(fast_net) --qkv epilogue)
$(call sized,vit-projection,12,--projection --sizes)
# Chapter 9 over batch at 224 pixels, and over the photo's side. Chapter 12 over batch at three sides,
# with the fastest step of each component; at 224 pixels also with its own simple ones.
sweep_batches := 1 2 4 8 16 32
sweep_sides := 224 384 512
$(foreach b,$(sweep_batches),$(call sweep,embedding-$b-224,9,--batch $b))
$(foreach s,$(filter-out 224,$(sweep_sides)),$(call sweep,embedding-1-$s,9,--size $s))
$(foreach b,$(sweep_batches),$(call sweep,net-simple-$b-224,12,--batch $b))
$(foreach b,$(sweep_batches),$(foreach s,$(sweep_sides),$(call sweep,net-fast-$b-$s,12,--batch $b \
  --size $s $(fast_net))))
# Lesson 5 speaks of 512 tokens, lessons 13 to 15 of 197 and 1025, lesson 10 of many rows and short ones, lesson 12
# of one photo and other choices. Of sized runs lessons 3 and 11 to 15 quote why warps wait, how busy pipes are, and
# single launches.
$(call quoted,attention-5-512,5,--batch 32 --tokens 512)
$(call quoted,attention-5-512-16-warps,5,--batch 32 --tokens 512 --step '16 warps')
$(foreach t,197 1025,$(foreach n,13 14,$(call quoted,attention-$n-$t,$n,--batch 32 --tokens $t)))
$(foreach t,197 1025,$(call quoted,attention-14-$t-head-by-head,14,--batch 32 --tokens $t --step 'head by head'))
$(foreach t,197 1025,$(call quoted,attention-13-$t-small-tiles,13,--batch 32 --tokens $t --step 'small tiles'))
$(foreach s,tensor-cores deterministic,$(call quoted,gradients-1025-$s,15,--batch 32 --tokens 1025 --step '$(subst -, ,$s)'))
$(call quoted,layer-norm-100000,10,--rows 100000)
$(call quoted,layer-norm-64,10,--rows 200000 --columns 64)
$(call quoted,vit-best-1,12,$(fast_net) --qkv epilogue)
$(foreach a,naive coalesced_loads,$(call quoted,vit-$a,12,--attention $a))
$(call quoted,vit-projection,12,--projection --batch 32 --tokens 64 --width 512 --heads 8)
# Layers of chapter 20's network, of two photos and by two steps.
$(foreach s,224 64,$(call quoted,style-$s,20,--size $s))
$(call quoted,style-224-three-passes,20,--size 224 --step 'three passes')
quoted_results += $(addprefix $T/docs/sized-,$(addsuffix .json,attention-3 attention-13 attention-13-small-tiles \
  attention-14 gradients mlp vit-3))

bench_runs := $(foreach n,$(chapters),$(call lesson_results,$n))
ifdef vgpu_asked
bench: $(bench_runs) $(sized_results) $(sweep_results) $(quoted_results)
	@$(need_python)
	@status=0; for make in 'counters.py $(results) $(bench_runs)' \
	    'gains.py $(results) $(sized_results)' 'sweeps.py $(results) $(sweep_results)' \
	    'quoted.py $(results) $(quoted_results)'; do \
	  set -- $$make; script=$$1; shift; \
	  python3 $(bench_scripts)/$$script $(if $(CHECK),--check) --ptxas '$(toolkit_ptxas)' "$$@" || \
	    status=$$?; done; exit $$status
endif
