"""Local SGD: processes train on their own, and average their parameters now and then."""
