# Where the gradient is.
$(call photo,gradient.jpg,--queries 1 --size 96 --step sorted)
